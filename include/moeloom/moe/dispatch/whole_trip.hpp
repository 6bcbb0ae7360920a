// A way that moves rows whole, as a trip of one chunk: dispatch, and when everything is computed combine.
#pragma once

#include "moeloom/base/interlude.hpp"
#include "moeloom/moe/dispatch/round_trip.hpp"

namespace moeloom {

/// The functions of Dispatcher, by those of Way:
///   plan      of what Way needs
///   dispatch  tokens [T, D] -> rows [R, D], each token once a slot, grouped by local expert
///   prepare   makes rows [count, cols] where combine can fetch from, contents unspecified
///   combine   rows [R, D] -> tokens [T, D], the sum of a token's K rows in slot order, written or added
template <typename Way>
class WholeTrip {
 public:
  explicit WholeTrip(Way way) : way_(std::move(way)) {}

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
    way_.plan(topk_idx, top_k, plan);
  }
  /// Of ways whose ranks need not ask each other for counts [ep, experts] that all of them know.
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan) requires requires(Way way) {
    way.plan(topk_idx, top_k, counts, plan);
  }
  { way_.plan(topk_idx, top_k, counts, plan); }
  Index chunks() const { return 1; }
  void begin(const RoundTrip& trip) {
    way_.dispatch(trip.plan, trip.tokens, trip.rows, trip.scalars_out);
    way_.prepare(trip.results, trip.plan.rows(), trip.tokens.cols);
  }
  Stretch near_ranks() const { return {}; }
  void await_near(const RoundTrip& /*trip*/) {}
  bool arrived(Index /*chunk*/) const { return true; }
  void await(const RoundTrip& /*trip*/, Index /*chunk*/) {}
  void send_back(const RoundTrip& /*trip*/, Index /*chunk*/) {}
  void finish(const RoundTrip& trip) {
    if (trip.one_way) return;
    way_.combine(trip.plan, trip.results, trip.sums, trip.mode, trip.scalars_back);
  }
  Interlude progress() const { return {}; }
  std::int64_t network_bytes() const { return way_.network_bytes(); }

 private:
  Way way_;
};

}  // namespace moeloom
