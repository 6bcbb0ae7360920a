// Trips through a dispatcher in one call.
#pragma once

#include "moe/dispatch/round_trip.hpp"

namespace moeloom::testing {

/// compute(chunk) when its rows have landed: writes its rows of trip.results.
template <typename AnyDispatcher, typename Compute>
void travel(AnyDispatcher& dispatcher, const RoundTrip& trip, Compute compute) {
  dispatcher.begin(trip);
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    dispatcher.await(trip, chunk);
    dispatcher.progress()();
    compute(chunk);
    dispatcher.send_back(trip, chunk);
  }
  dispatcher.finish(trip);
}

/// Its rows go home as they landed.
inline void return_chunk(const RoundTrip& trip, Index chunk) {
  const Stretch rows = trip.plan.chunks.rows_of(chunk);
  copy(trip.rows.view().rows_from(rows.begin, rows.size()),
       trip.results.view().rows_from(rows.begin, rows.size()));
}

template <typename AnyDispatcher>
void travel(AnyDispatcher& dispatcher, const RoundTrip& trip) {
  travel(dispatcher, trip, [&](Index chunk) { return_chunk(trip, chunk); });
}

/// Tokens out, in whatever state their rows go home.
template <typename AnyDispatcher>
void bring_rows(AnyDispatcher& dispatcher, const DispatchPlan& plan, ConstMatrixView tokens,
                RowBuffer& rows) {
  RowBuffer results;
  Matrix sums(tokens.rows, tokens.cols);
  travel(dispatcher, {.plan = plan,
                      .tokens = tokens,
                      .rows = rows,
                      .scalars_out = std::nullopt,
                      .results = results,
                      .sums = sums});
}

}  // namespace moeloom::testing
