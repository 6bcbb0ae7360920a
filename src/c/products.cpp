// Grouped products of a caller's arrays: both layouts are one kernel, whose forward and input gradient change
// places.
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// In bf16 where all operands are and the CPU multiplies it: products of bf16 numbers are exact in either
/// way.
GroupedMatmulKernel kernel_of(std::initializer_list<const ml_array*> operands) {
  const bool halves = std::ranges::all_of(operands, [](auto* array) { return array->dtype == ML_BF16; });
  return halves && cpu_has_bf16() ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
}

/// Rows of each expert.
struct Counts {
  explicit Counts(const ml_array* counts)
      : each(integers_of(check_array(counts, "counts", {kAny}), "counts")) {
    check(std::ranges::all_of(each, [](Index rows) { return rows >= 0; }),
          [] { return "counts has a negative number"; });
    for (const Index rows : each)
      check(!__builtin_add_overflow(total, rows, &total), [] { return "counts has a sum that overflows"; });
  }
  GroupedRows of_all() const { return {each}; }
  GroupedRows of_one(Index expert) const { return {std::span(each).subspan(at(expert), 1)}; }

  std::vector<Index> each;
  Index total = 0;
};

/// Weights of experts, [rows, cols] each: one array of rows at one distance, or one for each expert.
class Stack {
 public:
  enum class For { kReading, kWriting };
  Stack(const ml_weights& weights, Index experts, const char* name, For purpose = For::kReading)
      : layout_(weights.layout) {
    check(layout_ == ML_OUT_IN || layout_ == ML_IN_OUT, [] { return "a layout is ML_OUT_IN or ML_IN_OUT"; });
    check(weights.count >= 1, [&] { return std::string(name) + " has no arrays"; });
    const ml_array& first = given(weights.arrays, name);
    if (weights.count == 1 && first.ndim == 3) {
      check_array(&first, name, {experts, kAny, kAny});
      if (purpose == For::kWriting) check_apart(first, name);
      arrays_ = {first};
      if (experts > 0 && !row_stride(first)) split();
    } else {
      check(weights.count == experts, [&] {
        return std::string(name) + " has " + std::to_string(weights.count) + " arrays, and counts " +
               std::to_string(experts);
      });
      arrays_.assign(weights.arrays, weights.arrays + weights.count);
      for (const ml_array& array : arrays_) check_array(&array, name, {first.shape[0], first.shape[1]});
    }
  }
  const std::vector<ml_array>& arrays() const { return arrays_; }
  bool is_one() const { return arrays_[0].ndim == 3; }
  /// Of an expert's.
  Index rows() const { return arrays_[0].shape[arrays_[0].ndim - 2]; }
  Index cols() const { return cols_of(arrays_[0]); }
  bool is_out_in() const { return layout_ == ML_OUT_IN; }

 private:
  void split() {
    const ml_array whole = arrays_[0];
    arrays_.clear();
    for (Index expert = 0; expert < whole.shape[0]; ++expert) arrays_.push_back(part_of(whole, expert));
  }

  std::vector<ml_array> arrays_;
  Index layout_;
};

/// Each array borrowed.
template <typename Borrowed, typename... How>
std::vector<Borrowed> borrow(const Stack& stack, const char* name, How... how) {
  std::vector<Borrowed> borrowed;
  for (const ml_array& array : stack.arrays()) borrowed.emplace_back(array, name, how...);
  return borrowed;
}

struct Names {
  const char *from, *to;
};

/// y = x_i w_i^T of each expert i (`along`), or x_i w_i.
void multiply(const Names& names, bool along, const ml_array* x, const Stack& weights, const Counts& counts,
              const ml_array* y) {
  const Index rows = weights.rows(), cols = weights.cols();
  check_array(x, names.from, {counts.total, along ? cols : rows});
  check_array(y, names.to, {counts.total, along ? rows : cols});
  const GroupedMatmulKernel kernel = kernel_of({x, &weights.arrays()[0]});
  const auto product = along ? kernel.forward : kernel.input_grad;
  const PackedWeights none;
  const RowsIn from(*x, names.from, kernel.element == DType::kBF16 ? InPlace::kBf16 : InPlace::kFp32);
  const RowsOut to(*y, names.to);
  if (cols_of(*x) == 0) {  // kernels write the first products of a sum, and there are none
    fill(to.fp32(), 0);
    return to.store();
  }
  const auto parts = borrow<RowsIn>(weights, "weights", InPlace::kHalves);
  if (weights.is_one()) {
    product({parts[0].rows(), std::ssize(counts.each)}, none, from.rows(), counts.of_all(), to.fp32());
  } else if (std::ranges::all_of(parts,
                                 [](const RowsIn& part) { return part.rows().type() == DType::kF32; })) {
    std::vector<ConstMatrixView> list;
    for (const RowsIn& part : parts) list.push_back(part.fp32());
    product(GroupedWeights::list(list), none, from.rows(), counts.of_all(), to.fp32());
  } else {
    for (Index expert = 0, row = 0; expert < std::ssize(parts); row += counts.each[at(expert++)])
      product({parts[at(expert)].rows(), 1}, none, from.rows().rows_from(row, counts.each[at(expert)]),
              counts.of_one(expert), to.fp32().rows_from(row, counts.each[at(expert)]));
  }
  to.store();
}

/// dw_i = dy_i^T x_i.
void weight_grad(const ml_array& dy, const ml_array& x, const Counts& counts, const Stack& d_weights,
                 Write mode) {
  const GroupedMatmulKernel kernel = kernel_of({&dy, &x});
  const InPlace rows = kernel.element == DType::kBF16 ? InPlace::kBf16 : InPlace::kFp32;
  const RowsIn left(dy, "dy", rows), right(x, "x", rows);
  const auto parts = borrow<RowsOut>(d_weights, "d_weights", InPlace::kBf16, mode);
  const auto is_fp32 = [](const RowsOut& part) { return std::holds_alternative<MatrixView>(part.rows()); };
  if (d_weights.is_one()) {
    kernel.weight_grad(left.rows(), right.rows(), counts.of_all(), {parts[0].rows(), nullptr}, mode);
  } else if (std::ranges::all_of(parts, is_fp32)) {
    std::vector<MatrixView> list;
    for (const RowsOut& part : parts) list.push_back(part.fp32());
    kernel.weight_grad(left.rows(), right.rows(), counts.of_all(), GroupedGradients(list), mode);
  } else {
    for (Index expert = 0, row = 0; expert < std::ssize(parts); row += counts.each[at(expert++)]) {
      const Index count = counts.each[at(expert)];
      kernel.weight_grad(left.rows().rows_from(row, count), right.rows().rows_from(row, count),
                         counts.of_one(expert), {parts[at(expert)].rows(), nullptr}, mode);
    }
  }
  for (const RowsOut& part : parts) part.store();
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_gmm(const ml_array* x, const ml_weights* weights, const ml_array* counts, const ml_array* y) {
  return guarded([&] {
    const Counts rows(counts);
    const Stack stack(given(weights, "weights"), std::ssize(rows.each), "weights");
    multiply({"x", "y"}, stack.is_out_in(), x, stack, rows, y);
  });
}

ml_status ml_gmm_input_grad(const ml_array* dy, const ml_weights* weights, const ml_array* counts,
                            const ml_array* dx) {
  return guarded([&] {
    const Counts rows(counts);
    const Stack stack(given(weights, "weights"), std::ssize(rows.each), "weights");
    multiply({"dy", "dx"}, !stack.is_out_in(), dy, stack, rows, dx);
  });
}

ml_status ml_gmm_weight_grad(const ml_array* dy, const ml_array* x, const ml_array* counts,
                             const ml_weights* d_weights, int32_t mode) {
  return guarded([&] {
    const Counts rows(counts);
    const Stack stack(given(d_weights, "d_weights"), std::ssize(rows.each), "d_weights",
                      Stack::For::kWriting);
    const bool out_in = stack.is_out_in();
    check_array(dy, "dy", {rows.total, out_in ? stack.rows() : stack.cols()});
    check_array(x, "x", {rows.total, out_in ? stack.cols() : stack.rows()});
    weight_grad(out_in ? *dy : *x, out_in ? *x : *dy, rows, stack, write_of(mode));
  });
}
