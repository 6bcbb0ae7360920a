// Rates of both paths of the experts' products on this machine, as the GMM policy's `auto` needs them.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

namespace moeloom {

/// Seconds of one layer's experts for one micro-batch: forward, input and weight gradients of gate_up [2F, D]
/// and down [D, F]. Packing both weights is apart, because micro-batches share it.
struct GmmRates {
  double loop_seconds = 0;
  double gmm_seconds = 0;
  double pack_seconds = 0;
};

/// Times the loop and `grouped` in turn on the rank's threads and gives medians. What is large is measured in
/// part, a few experts, columns and rows, and scaled up, so that it takes about `budget_seconds` and at most
/// 150 MiB; two rounds are made however small the budget.
GmmRates measure_gmm_rates(Index hidden, Index inter, Index resident_experts, Index rows_per_expert,
                           double budget_seconds,
                           const GroupedMatmulKernel& grouped = packed_grouped_matmul());

/// Both paths for one micro-batch whose packing serves `uses_per_packing` of them.
GmmPrediction predict(const GmmRates& rates, double uses_per_packing);

}  // namespace moeloom
