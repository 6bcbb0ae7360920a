#include "moeloom/kernels/calibration.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace moeloom {
namespace {

// More than a second-level cache holds, so that weights come from as far as they will in training.
constexpr Index kMeasuredWeights = 6 << 20;
// Both paths' rates are flat beyond.
constexpr Index kMeasuredRows = 128;

struct LayerSize {
  Index hidden, inter, experts, rows;  // rows: of each expert
  double weights() const { return 3.0 * static_cast<double>(hidden * inter * experts); }
  double products() const { return weights() * static_cast<double>(rows); }
};

LayerSize measured_part_of(const LayerSize& layer) {
  const Index inter = std::clamp<Index>(kMeasuredWeights / (3 * layer.hidden), 1, layer.inter);
  const Index experts = std::clamp<Index>(kMeasuredWeights / (3 * layer.hidden * inter), 1, layer.experts);
  return {layer.hidden, inter, experts, std::min(layer.rows, kMeasuredRows)};
}

Matrix filled(Index rows, Index cols) {
  Matrix m(rows, cols);
  fill(m, 0.5f);
  return m;
}

/// One weight [out, in] of every expert with its rows and gradients.
class Product {
 public:
  Product(Index out, Index in, Index experts, Index rows)
      : rows_(static_cast<std::size_t>(experts), rows),
        masters_(filled(experts * out, in)),
        d_masters_(filled(experts * out, in)),
        x_(filled(experts * rows, in)),
        dy_(filled(experts * rows, out)),
        y_(experts * rows, out),
        dx_(experts * rows, in) {}

  void pack(DType element) { packed_.pack(weights(), element); }

  /// Forward, input gradient, and the weight gradient added as training adds it.
  void run(const GroupedMatmulKernel& kernel) {
    const GroupedRows rows{rows_, 1};
    kernel.forward(weights(), packed_, x_, rows, y_);
    kernel.input_grad(weights(), packed_, dy_, rows, dx_);
    kernel.weight_grad(dy_, x_, rows, d_masters_, Write::kAdd);
  }

 private:
  GroupedWeights weights() const { return {masters_, static_cast<Index>(rows_.size())}; }

  std::vector<Index> rows_;
  Matrix masters_, d_masters_, x_, dy_, y_, dx_;
  PackedWeights packed_;
};

template <typename Work>
double seconds_of(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Layer {
 public:
  explicit Layer(const LayerSize& size)
      : gate_up_(2 * size.inter, size.hidden, size.experts, size.rows),
        down_(size.hidden, size.inter, size.experts, size.rows) {}

  double pack_seconds(DType element) {
    return seconds_of([&] { gate_up_.pack(element), down_.pack(element); });
  }
  double run_seconds(const GroupedMatmulKernel& kernel) {
    return seconds_of([&] { gate_up_.run(kernel), down_.run(kernel); });
  }

 private:
  Product gate_up_, down_;
};

GmmRates measure(const LayerSize& size, double budget_seconds, const GroupedMatmulKernel& kernel) {
  constexpr std::size_t kFewest = 2, kMost = 25;
  const auto start = std::chrono::steady_clock::now();
  Layer layer(size);
  layer.pack_seconds(kernel.element);  // its memory is new, and a training step's is not
  std::vector<double> pack, loop, grouped;
  double spent = 0;
  while (pack.size() < kFewest || (spent < budget_seconds && pack.size() < kMost)) {
    pack.push_back(layer.pack_seconds(kernel.element));
    loop.push_back(layer.run_seconds(native_grouped_matmul()));
    grouped.push_back(layer.run_seconds(kernel));
    spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return {median(loop), median(grouped), median(pack)};
}

}  // namespace

GmmRates measure_gmm_rates(Index hidden, Index inter, Index resident_experts, Index rows_per_expert,
                           double budget_seconds, const GroupedMatmulKernel& grouped) {
  require(hidden > 0 && inter > 0 && resident_experts > 0,
          "rates need positive hidden and inter sizes and at least one resident expert");
  const LayerSize layer{hidden, inter, resident_experts, std::max<Index>(rows_per_expert, 1)};
  const LayerSize part = measured_part_of(layer);
  const GmmRates rates = measure(part, budget_seconds, grouped);
  const double products = layer.products() / part.products(), weights = layer.weights() / part.weights();
  return {rates.loop_seconds * products, rates.gmm_seconds * products, rates.pack_seconds * weights};
}

GmmPrediction predict(const GmmRates& rates, double uses_per_packing) {
  require(uses_per_packing > 0, "a packing is used at least once");
  return {rates.loop_seconds, rates.gmm_seconds + rates.pack_seconds / uses_per_packing};
}

}  // namespace moeloom
