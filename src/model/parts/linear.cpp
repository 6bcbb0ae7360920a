#include "model/parts/linear.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace moeloom {
namespace {

constexpr Index kBlockRows = 256;
constexpr Index kBlockColumns = 256;  // floats: a block's sums stay in the first-level cache

/// y (=, +=) bias in every row.
void write_bias(std::span<const float> bias, MatrixView y, Write mode) {
  parallel_blocks(y.rows, kBlockRows, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      float* row = y.row(t);
      if (mode == Write::kReplace) {
        std::ranges::copy(bias, row);
      } else {
        for (Index j = 0; j < y.cols; ++j) row[j] += bias[at(j)];
      }
    }
  });
}

}  // namespace

Linear Linear::of(const ParameterStore& store, const std::string& weight) {
  const Parameter& parameter = store.find(weight);
  return {.weight = parameter.value,
          .grad = parameter.grad,
          .sums = store.sums(Placement::kWorld),
          .adapter = adapter_of(store, weight),
          .halves = parameter.halves};
}

Linear Linear::with_bias(const ParameterStore& store, const std::string& module) {
  Linear linear = of(store, module + ".weight");
  const Parameter& bias = store.find(module + ".bias");
  require(bias.value.size() == linear.out(), "a bias needs one number for each row of its weight");
  linear.bias = bias.value.flat();
  linear.bias_grad = bias.grad.flat();
  return linear;
}

std::vector<std::uint64_t> Linear::keys_of(ConstRows x) const {
  return drops_inputs(adapter) ? row_keys(x) : std::vector<std::uint64_t>();
}

void Linear::forward(const DenseKernel& kernel, ConstRows x, MatrixView y, Write mode, RowKeys keys) const {
  if (!bias.empty()) write_bias(bias, y, mode);
  kernel.forward(x, weights(), y, bias.empty() ? mode : Write::kAdd);
  std::vector<std::uint64_t> own;
  if (keys.empty()) keys = own = keys_of(x);
  add_low_rank(kernel, adapter, x, y, keys);
}

void Linear::backward_weight(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, RowKeys keys) const {
  for_each_leaf(sums, dy.rows, [&](Index first, Index rows) {
    const ConstMatrixView dy_of = dy.rows_from(first, rows);
    if (grad.size() > 0) kernel.weight_grad(dy_of, x.rows_from(first, rows), grad, Write::kAdd);
    if (!bias_grad.empty()) add_row_sums(dy_of, bias_grad);
    if (sums == nullptr) return;
    if (grad.size() > 0) sums->take(grad);
    if (!bias_grad.empty()) sums->take(bias_grad);
  });
  add_low_rank_weight_grads(kernel, adapter, dy, x, sums, keys);
}

void Linear::backward_input(const DenseKernel& kernel, ConstMatrixView dy, MatrixView dx, Write mode,
                            RowKeys keys) const {
  kernel.input_grad(dy, weights(), dx, mode);
  add_low_rank_input_grad(kernel, adapter, dy, dx, keys);
}

void Linear::backward(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, MatrixView dx, Write mode,
                      RowKeys keys) const {
  std::vector<std::uint64_t> own;
  if (keys.empty()) keys = own = keys_of(x);
  backward_weight(kernel, dy, x, keys);
  backward_input(kernel, dy, dx, mode, keys);
}

std::vector<LowRank> adapter_of(const ParameterStore& store, const std::string& base) {
  std::vector<LowRank> parts;
  for (const Parameter& parameter : store.parameters()) {
    const std::optional<AdapterRole>& role = parameter.spec.adapter;
    if (!role || role->base != base) continue;
    if (role->is_a) {
      parts.push_back({.column = role->row,
                       .a = parameter.value,
                       .d_a = parameter.grad,
                       .scale = role->scale,
                       .dropout = role->dropout > 0 ? &store.dropout() : nullptr,
                       .stream = stream_of(parameter.spec.name)});
    } else {
      parts.back().b = parameter.value;
      parts.back().d_b = parameter.grad;
    }
  }
  return parts;
}

namespace {

/// U of one addition, and dU of all that is added to a product.
double low_bytes(const std::vector<ParameterSpec>& specs, Index rows) {
  std::map<std::string, Index> ranks;  // added to a parameter
  Index largest = 0;
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.placement != Placement::kExperts) continue;
    const Index rank = spec.rows / spec.groups;
    ranks[spec.adapter->base] += rank;
    largest = std::max(largest, rank);
  }
  std::map<std::string, Index> most;  // by product
  for (const auto& [base, rank] : ranks) {
    Index& of_product = most[base.substr(base.rfind('.') + 1)];
    of_product = std::max(of_product, rank);
  }
  double bytes = rows_bytes(rows, {largest});
  for (const auto& [product, rank] : most) bytes += rows_bytes(rows, {rank});
  return bytes;
}

}  // namespace

double adapter_bytes(const std::vector<ParameterSpec>& specs, const Job& job, LayerRows rows) {
  double copies = 0, of_tokens = 0;
  std::set<Index> layers;  // whose experts drop inputs
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter || !spec.adapter->is_a || spec.adapter->dropout == 0) continue;
    const bool is_dense = spec.placement == Placement::kWorld;
    copies = std::max(copies, is_dense ? dropped_bytes(job.tokens(), spec.cols)
                                       : dropped_group_bytes(rows.at_once, spec.cols));
    if (is_dense)
      of_tokens = key_bytes(job.tokens());
    else
      layers.insert(spec.layer);
  }
  const Index most = job.keeping.recompute == Recompute::kNone ? std::ssize(layers) : 1;
  return low_bytes(specs, rows.at_once) + copies + of_tokens +
         static_cast<double>(std::min<Index>(std::ssize(layers), most)) * key_bytes(rows.at_once);
}

void add_row_sums(ConstMatrixView x, std::span<float> sums) {
  require(static_cast<Index>(sums.size()) == x.cols, "a row sum needs one number for each column");
  parallel_blocks(x.cols, kBlockColumns, [&](Index first, Index last) {
    std::array<float, kBlockColumns> chunk;
    for (Index begin = 0; begin < x.rows; begin += kSumChunkRows) {
      chunk.fill(0.0f);
      for (Index t = begin; t < std::min(begin + kSumChunkRows, x.rows); ++t)
        for (Index j = first; j < last; ++j) chunk[at(j - first)] += x.row(t)[j];
      for (Index j = first; j < last; ++j) sums[at(j)] += chunk[at(j - first)];
    }
  });
}

}  // namespace moeloom
