// Rows out to their experts and what became of them back: one layer's forward, or its backward.
#pragma once

#include "moeloom/moe/dispatch_plan.hpp"
#include "moeloom/moe/row_buffer.hpp"

namespace moeloom {

/// Everything must live, and what leaves be left alone, until the trip is finished.
struct RoundTrip {
  const DispatchPlan& plan;
  ConstMatrixView tokens;  // [T, D], that leave
  RowBuffer& rows;         // [R, D], as they land
  std::optional<ScalarsOut> scalars_out;
  RowBuffer& results;  // [R, D], made of them; prepared by the dispatcher
  MatrixView sums;     // [T, D], of a token's results in slot order, written or added
  Write mode = Write::kReplace;
  std::optional<ScalarsBack> scalars_back = std::nullopt;
};

}  // namespace moeloom
