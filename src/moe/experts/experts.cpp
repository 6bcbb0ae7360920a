#include "moe/experts/experts.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "experts/expert_biases.hpp"

namespace moeloom {

void PackedExperts::refresh(const GroupedMatmulKernel& kernel, const ExpertShard& shard,
                            std::uint64_t version) {
  if (!kernel.uses_packed) return release();
  if (version == version_ && kernel.element == gate_up_.element()) return;
  gate_up_.pack(shard.gate_up_weights(), kernel.element);
  down_.pack(shard.down_weights(), kernel.element);
  version_ = version;
}

void PackedExperts::release() {
  if (version_ != 0) *this = PackedExperts();
}

namespace {

ExpertChunk whole(const ExpertPass& pass) {
  return {{0, pass.rows.groups()}, {0, pass.saved.rows.rows()}};
}

/// The rows of a chunk; experts that have none there cost nothing.
GroupedRows rows_of(const ExpertPass& pass, const ExpertChunk& chunk) {
  const Index all = pass.rows.sources;
  if (chunk.experts.size() == pass.rows.groups() && !chunk.sources) return pass.rows;
  const Stretch sources = chunk.sources.value_or(Stretch{0, all});
  std::vector<Index>& rows = pass.workspace.chunk_rows;
  rows.assign(pass.rows.rows_per_source.size(), 0);
  const auto first = pass.rows.rows_per_source.begin();
  for (Index expert = chunk.experts.begin; expert < chunk.experts.end; ++expert)
    std::copy(first + expert * all + sources.begin, first + expert * all + sources.end,
              rows.begin() + expert * all + sources.begin);
  return {rows, all};
}

template <typename Number>
BasicView<Number> of_chunk(BasicView<Number> rows, const ExpertChunk& chunk) {
  return rows.rows_from(chunk.rows.begin, chunk.rows.size());
}
Rows of_chunk(Rows rows, const ExpertChunk& chunk) {
  return rows_from(rows, chunk.rows.begin, chunk.rows.size());
}
std::span<float> of_chunk(std::vector<float>& numbers, const ExpertChunk& chunk) {
  return std::span(numbers).subspan(at(chunk.rows.begin), at(chunk.rows.size()));
}
std::span<const float> of_chunk(const std::vector<float>& numbers, const ExpertChunk& chunk) {
  return std::span(numbers).subspan(at(chunk.rows.begin), at(chunk.rows.size()));
}
/// None where nothing is dropped.
std::span<std::uint64_t> of_chunk(std::vector<std::uint64_t>& keys, const ExpertChunk& chunk) {
  if (keys.empty()) return {};
  return std::span(keys).subspan(at(chunk.rows.begin), at(chunk.rows.size()));
}

/// dZ takes the place of Z, which is fp32.
Rows d_gate_up_rows(const ExpertPass& pass) {
  if (pass.kernels.grouped_matmul.element == DType::kF32) return pass.saved.gate_up.view();
  return pass.workspace.d_gate_up.rows();
}

/// The gradients of a chunk's experts of a stacked weight.
template <typename Number>
BasicView<Number> gradients_of(BasicView<Number> stacked, const ExpertPass& pass, const Stretch& experts) {
  const Index rows_each = stacked.rows / pass.rows.groups();
  return stacked.rows_from(experts.begin * rows_each, experts.size() * rows_each);
}

}  // namespace

void prepare_forward(const ExpertPass& pass) {
  const Index total = pass.saved.rows.rows(), inter = pass.shard.down.cols;
  require(total == pass.rows.total(), "the experts need as many rows as were planned");
  check_biases(pass.shard);
  pass.saved.gate_up.reshape_uninitialised(total, 2 * inter);
  pass.saved.keys.resize(pass.shard.adapters.drops() ? at(total) : 0);
  pass.workspace.activated.reshape_uninitialised(pass.kernels.grouped_matmul.element, total, inter);
}

void keep_chunk(const ExpertPass& pass, const ExpertChunk& chunk) {
  const auto& [kernels, shard, packed, all_rows, saved, workspace, clock] = pass;
  const GroupedRows rows = rows_of(pass, chunk);
  const MatrixView gate_up = of_chunk(saved.gate_up.view(), chunk);
  const std::span<std::uint64_t> keys = of_chunk(saved.keys, chunk);
  if (!keys.empty()) find_row_keys(of_chunk(saved.rows.view(), chunk), keys);
  clock.product("gate_up", chunk.rows.size(), [&] {
    kernels.grouped_matmul.forward(shard.gate_up_weights(), packed.gate_up(),
                                   of_chunk(saved.rows.view(), chunk), rows, gate_up);
    add_low_rank(kernels.grouped_matmul, shard.adapters.gate_up, of_chunk(saved.rows.view(), chunk), rows,
                 gate_up, workspace.low, keys);
  });
  BiasedRows{shard.biases, shard.scales_rows(), rows, of_chunk(saved.weights, chunk)}.finish_gate_up(gate_up);
}

void forward_chunk(const ExpertPass& pass, const ExpertChunk& chunk) {
  keep_chunk(pass, chunk);
  const auto& [kernels, shard, packed, all_rows, saved, workspace, clock] = pass;
  const GroupedRows rows = rows_of(pass, chunk);
  const BiasedRows biased{shard.biases, shard.scales_rows(), rows, of_chunk(saved.weights, chunk)};
  const Rows activated = of_chunk(workspace.activated.rows(), chunk);
  kernels.swiglu.forward(activation_of(shard), of_chunk(saved.gate_up.view(), chunk), biased.row_scale(),
                         activated);
  const MatrixView output = of_chunk(workspace.output.view(), chunk);
  clock.product("down", chunk.rows.size(), [&] {
    kernels.grouped_matmul.forward(shard.down_weights(), packed.down(), activated, rows, output);
    add_low_rank(kernels.grouped_matmul, shard.adapters.down, activated, rows, output, workspace.low,
                 of_chunk(saved.keys, chunk));
  });
  biased.finish_output(output);
}

void prepare_backward(const ExpertPass& pass) {
  const Index total = pass.saved.rows.rows(), inter = pass.shard.down.cols;
  require(total == pass.rows.total(), "the experts' backward needs the rows of the forward");
  const DType element = pass.kernels.grouped_matmul.element;
  ExpertWorkspace& workspace = pass.workspace;
  workspace.d_activated.reshape_uninitialised(total, inter);
  workspace.activated.reshape_uninitialised(element, total, inter);
  if (element != DType::kF32) workspace.d_gate_up.reshape_uninitialised(element, total, 2 * inter);
  const ExpertAdapters& adapters = pass.shard.adapters;
  workspace.d_low_gate_up.reshape_uninitialised(total, low_columns(adapters.gate_up, pass.shard.experts));
  workspace.d_low_down.reshape_uninitialised(total, low_columns(adapters.down, pass.shard.experts));
  workspace.d_weights.resize(pass.saved.weights.size());
  if (pass.shard.biases.any()) workspace.ones.assign(at(total), 1.0f);
}

void backward_chunk(const ExpertPass& pass, const ExpertChunk& chunk, ConstMatrixView d_rows) {
  const auto& [kernels, shard, packed, all_rows, saved, workspace, clock] = pass;
  const GroupedRows rows = rows_of(pass, chunk);
  const BiasedRows biased{shard.biases, shard.scales_rows(), rows, of_chunk(saved.weights, chunk)};
  const std::span<float> d_weights = of_chunk(workspace.d_weights, chunk);
  const MatrixView output = of_chunk(workspace.output.view(), chunk);
  const MatrixView d_activated = of_chunk(workspace.d_activated.view(), chunk);
  const Rows d_gate_up = of_chunk(d_gate_up_rows(pass), chunk);
  clock.product("down input_grad", chunk.rows.size(), [&] {
    kernels.grouped_matmul.input_grad(shard.down_weights(), packed.down(), of_chunk(d_rows, chunk), rows,
                                      d_activated);
    add_low_rank_input_grad(kernels.grouped_matmul, shard.adapters.down, of_chunk(d_rows, chunk), rows,
                            d_activated, of_chunk(workspace.d_low_down.view(), chunk),
                            of_chunk(saved.keys, chunk));
  });
  kernels.swiglu.backward(
      activation_of(shard), of_chunk(saved.gate_up.view(), chunk), biased.row_scale(), d_activated,
      {d_gate_up, d_weights.first(biased.row_scale().size()), of_chunk(workspace.activated.rows(), chunk)});
  clock.product("gate_up input_grad", chunk.rows.size(), [&] {
    kernels.grouped_matmul.input_grad(shard.gate_up_weights(), packed.gate_up(), d_gate_up, rows, output);
    add_low_rank_input_grad(kernels.grouped_matmul, shard.adapters.gate_up, d_gate_up, rows, output,
                            of_chunk(workspace.d_low_gate_up.view(), chunk), of_chunk(saved.keys, chunk));
  });
  biased.finish_backward(of_chunk(d_rows, chunk), of_chunk(saved.rows.view(), chunk), output, d_weights);
}

namespace {

/// Of each parameter, stacked or a matrix a group.
struct AllGradients {
  GroupedGradients gate_up, down, gate_up_bias, down_bias;
};

/// Of groups whose rows are chunk.rows.
void weight_gradients(const ExpertPass& pass, const ExpertChunk& chunk, const GroupedRows& groups,
                      ConstMatrixView d_rows, const AllGradients& into, Write gradients) {
  const auto& [kernels, shard, packed, all_rows, saved, workspace, clock] = pass;
  const Index rows = chunk.rows.size();
  const ConstRows d_output = of_chunk(d_rows, chunk), d_gate_up = of_chunk(d_gate_up_rows(pass), chunk);
  const auto write = [&](ConstRows dy, ConstRows x, const GroupedGradients& target) {
    kernels.grouped_matmul.weight_grad(dy, x, groups, target, gradients);
  };
  if (shard.d_down.rows > 0)
    clock.product("down weight_grad", rows,
                  [&] { write(d_output, of_chunk(workspace.activated.rows(), chunk), into.down); });
  if (shard.d_gate_up.rows > 0)
    clock.product("gate_up weight_grad", rows,
                  [&] { write(d_gate_up, of_chunk(saved.rows.view(), chunk), into.gate_up); });
  const std::vector<float>& factors = shard.scales_rows() ? workspace.ones : saved.weights;
  if (shard.biases.d_down.rows > 0) write(d_output, as_column(of_chunk(factors, chunk)), into.down_bias);
  if (shard.biases.d_gate_up.rows > 0)
    write(d_gate_up, as_column(of_chunk(workspace.ones, chunk)), into.gate_up_bias);
}

void adapter_gradients(const ExpertPass& pass, const ExpertChunk& chunk, const GroupedRows& groups,
                       ConstMatrixView d_rows, Write gradients) {
  const auto& [kernels, shard, packed, all_rows, saved, workspace, clock] = pass;
  const auto write = [&](std::span<const LowRank> parts, ConstRows dy, const Matrix& d_low, ConstRows x) {
    low_rank_weight_grads(kernels.grouped_matmul, parts, all_rows.groups(), chunk.experts, dy,
                          of_chunk(d_low.view(), chunk), x, groups, shard.sums, gradients, workspace.low,
                          of_chunk(saved.keys, chunk));
  };
  write(shard.adapters.down, of_chunk(d_rows, chunk), workspace.d_low_down,
        of_chunk(workspace.activated.rows(), chunk));
  write(shard.adapters.gate_up, of_chunk(d_gate_up_rows(pass), chunk), workspace.d_low_gate_up,
        of_chunk(saved.rows.view(), chunk));
}

/// Of a parameter with no gradient: nothing.
MatrixView column_of(MatrixView biases) {
  return {biases.data, biases.size(), 1};
}

}  // namespace

void weight_gradients(const ExpertPass& pass, const ExpertChunk& chunk, ConstMatrixView d_rows,
                      Write gradients) {
  if (chunk.experts.size() == 0) return;
  const Index sources = pass.rows.sources;
  const GroupedRows groups{pass.rows.rows_per_source.subspan(at(chunk.experts.begin * sources),
                                                             at(chunk.experts.size() * sources)),
                           sources};
  const auto target = [&](MatrixView stacked, Bf16View halves = {}) {
    return halves.data != nullptr
               ? GroupedGradients(gradients_of(halves, pass, chunk.experts))
               : GroupedGradients(gradients_of(stacked, pass, chunk.experts), pass.shard.sums);
  };
  const ExpertBiases& biases = pass.shard.biases;
  weight_gradients(pass, chunk, groups, d_rows,
                   {target(pass.shard.d_gate_up, pass.shard.d_gate_up_halves),
                    target(pass.shard.d_down, pass.shard.d_down_halves), target(column_of(biases.d_gate_up)),
                    target(column_of(biases.d_down))},
                   gradients);
  adapter_gradients(pass, chunk, groups, d_rows, gradients);
}

void experts_forward(const ExpertPass& pass) {
  pass.workspace.output.reshape_uninitialised(pass.saved.rows.rows(), pass.shard.gate_up.cols);
  prepare_forward(pass);
  forward_chunk(pass, whole(pass));
}

void experts_backward(const ExpertPass& pass, ConstMatrixView d_rows, Write gradients) {
  require(d_rows.rows == pass.saved.rows.rows(), "the experts' backward needs the rows of the forward");
  pass.workspace.output.reshape_uninitialised(d_rows.rows, pass.shard.gate_up.cols);
  prepare_backward(pass);
  backward_chunk(pass, whole(pass), d_rows);
  weight_gradients(pass, whole(pass), d_rows, gradients);
}

}  // namespace moeloom
