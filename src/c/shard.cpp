#include "shard.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "arrays.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// A stack of weights or gradients, read or written where it lies.
struct StackView {
  MatrixView fp32;  // of halves the shape alone
  HalfView halves = {};
};

StackView stack_of(const ml_array* array, const char* name, std::initializer_list<Index> shape) {
  const ml_array& a = check_array(array, name, shape);
  if (a.dtype > ML_F16) refuse_type(a, name, "ML_F32, ML_BF16 or ML_F16");
  const auto stride = row_stride(a);
  const Index rows = rows_of(a), cols = cols_of(a);
  const bool whole = stride && is_aligned(a) && (*stride == cols || (a.dtype == ML_F32 && *stride > cols));
  check(whole || rows * cols == 0, [&] {
    return std::string(name) +
           " is read where it lies, and so has to be a stack without gaps; make it contiguous";
  });
  if (a.dtype == ML_F32) return {MatrixView(static_cast<float*>(a.data), rows, cols, stride.value_or(cols))};
  const DType type = a.dtype == ML_BF16 ? DType::kBF16 : DType::kF16;
  return {MatrixView(nullptr, rows, cols), HalfView(static_cast<std::uint16_t*>(a.data), rows, cols, type)};
}

StackView gradient_of(const ml_array* array, const char* name, std::initializer_list<Index> shape) {
  if (array == nullptr) return {};
  const StackView stack = stack_of(array, name, shape);
  if (stack.halves.data != nullptr && stack.halves.type == DType::kF16)
    refuse_type(*array, name, "ML_F32 or ML_BF16");
  return stack;
}

MatrixView bias_of(const ml_array* array, const char* name, std::initializer_list<Index> shape) {
  if (array == nullptr) return {};
  if (check_array(array, name, shape).dtype != ML_F32) refuse_type(*array, name, "ML_F32");
  return stack_of(array, name, shape).fp32;
}

/// Read as one column by the products that sum it up.
MatrixView bias_gradient_of(const ml_array* array, const char* name, std::initializer_list<Index> shape) {
  const MatrixView bias = bias_of(array, name, shape);
  check(bias.rows <= 1 || bias.stride == bias.cols, [&] {
    return std::string(name) + " has gaps between its rows, and is written without; make it contiguous";
  });
  return bias;
}

struct Target {
  std::int32_t mode;
  StackView stack;
};
Bf16View bf16_of(const StackView& stack) {
  return {stack.halves.data, stack.halves.rows, stack.halves.cols};
}
Write one_mode(const std::array<Target, 4>& targets) {
  const auto adds = [](const Target& target) {
    return target.stack.fp32.rows > 0 && write_of(target.mode) == Write::kAdd;
  };
  if (std::ranges::none_of(targets, adds)) return Write::kReplace;
  for (const auto& [mode, stack] : targets) {
    if (stack.fp32.rows == 0 || write_of(mode) == Write::kAdd) continue;
    if (stack.halves.data != nullptr)
      std::fill_n(stack.halves.data, stack.halves.size(), std::uint16_t{0});
    else
      fill(stack.fp32, 0);
  }
  return Write::kAdd;
}

}  // namespace

Shard::Shard(Index held, const GatedActivation& activation, const ml_expert_weights* given_weights)
    : held_(held) {
  const ml_expert_weights weights = known_part(given_weights, "ml_expert_weights");
  check_array(weights.down, "down", {held_, kAny, kAny});
  hidden_ = weights.down->shape[1];
  inter_ = weights.down->shape[2];
  check(hidden_ >= 1 && inter_ >= 1, [&] {
    return "D = " + std::to_string(hidden_) + " and F = " + std::to_string(inter_) + " must be at least 1";
  });
  const StackView gate_up = stack_of(weights.gate_up, "gate_up", {held_, 2 * inter_, hidden_});
  const StackView down = stack_of(weights.down, "down", {held_, hidden_, inter_});
  shard_ = {.experts = held_,
            .gate_up = gate_up.fp32,
            .down = down.fp32,
            .d_gate_up = {},
            .d_down = {},
            .activation = activation,
            .gate_up_halves = gate_up.halves,
            .down_halves = down.halves};
  check((weights.gate_up_bias == nullptr) == (weights.down_bias == nullptr),
        [] { return "gate_up_bias and down_bias are both there or both NULL"; });
  shard_.biases.gate_up = bias_of(weights.gate_up_bias, "gate_up_bias", {held_, 2 * inter_});
  shard_.biases.down = bias_of(weights.down_bias, "down_bias", {held_, hidden_});
  is_bf16_ = weights.gate_up->dtype == ML_BF16 && weights.down->dtype == ML_BF16;
}

Write Shard::train(const ml_expert_grads* given_grads) {
  if (given_grads == nullptr) return Write::kReplace;
  const ml_expert_grads grads = known_part(given_grads, "ml_expert_grads");
  const StackView gate_up = gradient_of(grads.gate_up, "d_gate_up", {held_, 2 * inter_, hidden_});
  const StackView down = gradient_of(grads.down, "d_down", {held_, hidden_, inter_});
  shard_.d_gate_up = gate_up.fp32;
  shard_.d_gate_up_halves = bf16_of(gate_up);
  shard_.d_down = down.fp32;
  shard_.d_down_halves = bf16_of(down);
  const bool biased = shard_.biases.any();
  check(biased || (grads.gate_up_bias == nullptr && grads.down_bias == nullptr),
        [] { return "there are gradients of biases, and no biases"; });
  shard_.biases.d_gate_up = bias_gradient_of(grads.gate_up_bias, "d_gate_up_bias", {held_, 2 * inter_});
  shard_.biases.d_down = bias_gradient_of(grads.down_bias, "d_down_bias", {held_, hidden_});
  return one_mode({Target{grads.gate_up_mode, gate_up}, Target{grads.down_mode, down},
                   Target{grads.gate_up_bias_mode, {shard_.biases.d_gate_up}},
                   Target{grads.down_bias_mode, {shard_.biases.d_down}}});
}

}  // namespace moeloom::c
