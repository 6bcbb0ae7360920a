// Rates of both paths of the experts' products on this machine, by which `moeloom plan` predicts steps.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <functional>
#include <vector>

namespace moeloom {

/// What decides the speed of one layer's experts on a rank.
struct GmmCase {
  Index hidden = 0, inter = 0;
  Index experts = 0;  // resident
  Index rows_per_expert = 0;
  Index sources = 1;  // ranks that the rows come from: a weight gradient is a sum over them
  bool operator==(const GmmCase&) const = default;
};

/// Seconds of one layer's experts for one micro-batch: forward, input and weight gradients of gate_up [2F, D]
/// and down [D, F], and SwiGLU between them. Packing both weights is apart, because micro-batches share it.
struct GmmRates {
  double loop_seconds = 0;
  double gmm_seconds = 0;     // grouped, reading the masters
  double packed_seconds = 0;  // grouped, reading packed faces
  double pack_seconds = 0;
  // What adding weight gradients takes beyond writing them: the first micro-batch of a step writes.
  double loop_add_seconds = 0;
  double gmm_add_seconds = 0;
};

/// Seconds that one layer's expert products take for a micro-batch, by such rates.
struct GmmPrediction {
  double loop_seconds = 0;
  double gmm_seconds = 0;     // grouped, reading the masters
  double packed_seconds = 0;  // grouped, reading packed faces: with its share of the packing
};

/// So many rows for every expert from every source, expert after expert, as even as they can be.
std::vector<Index> even_rows(const GmmCase& measured);

/// The clock by which rates are measured, in seconds from some start: one thread's own time, so that what it
/// waits for a processor that others use is no path's; the wall's, where a rank has several.
double rate_clock();

/// What `plan` spends on it, once a machine and case.
inline constexpr double kCalibrationSeconds = 1.5;

/// The case that is measured for `wanted`: its rows are one of a bounded set, powers of the root of two.
GmmCase calibration_case(const GmmCase& wanted);

/// Times the loop and `grouped`, on masters and on packed faces, in turn on the rank's threads; gives the
/// loop's median, and the others by their shares of it in the quietest rounds. What is large is measured in
/// part, a few experts and columns, and scaled up; what is small is measured as several layers, because
/// training comes back to a layer's weights when the others have been in the caches. Takes about
/// `budget_seconds` and at most 250 MiB; two rounds are made however small the budget. Throws ShapeError for
/// sizes that are not positive.
GmmRates measure_gmm_rates(const GmmCase& measured, double budget_seconds,
                           const GroupedMatmulKernel& grouped = packed_grouped_matmul());

/// Seconds of the first micro-batch of a step by `kernel`, packing included, each time it is called: of the
/// part that measure_gmm_rates() measures, by its clock and in cold caches, for who compares calls in turn.
std::function<double()> gmm_timer(const GmmCase& measured, const GroupedMatmulKernel& kernel);

/// Floats that fill more than a last-level cache's share.
inline constexpr Index kCacheFloats = 12 << 20;

/// Rates of `measured` as those of `wanted`, which differs from it in sizes or rows.
GmmRates scaled(const GmmRates& rates, const GmmCase& measured, const GmmCase& wanted);

/// All paths for one micro-batch of a step of `uses_per_packing` micro-batches.
GmmPrediction predict(const GmmRates& rates, double uses_per_packing);

}  // namespace moeloom
