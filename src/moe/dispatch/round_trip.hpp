// Rows out to their experts and what became of them back: what a layer's forward, or its backward, asks of
// a dispatcher.
#pragma once

#include "moe/dispatch/dispatch_plan.hpp"
#include "moe/dispatch/row_buffer.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <optional>

namespace moeloom {

/// What of a trip is made. kOut: rows stay where they land, nothing is sent back, and sums are left alone.
/// kHome: results are the caller's, tokens are left alone, and no row lands.
enum class Legs { kBoth, kOut, kHome };

/// Everything must live, and what leaves be left alone, until the trip is finished. scalars_back's rows may
/// be written until their chunk is sent back.
struct RoundTrip {
  const DispatchPlan& plan;
  ConstMatrixView tokens;  // [T, D], that leave
  RowBuffer& rows;         // [R, D], as they land
  std::optional<ScalarsOut> scalars_out;
  RowBuffer& results;  // [R, D], made of them; prepared by the dispatcher
  MatrixView sums;     // [T, D], of a token's results in slot order, written or added
  Write mode = Write::kReplace;
  std::optional<ScalarsBack> scalars_back = std::nullopt;
  Legs legs = Legs::kBoth;

  bool goes_out() const { return legs != Legs::kHome; }
  bool comes_home() const { return legs != Legs::kOut; }
  /// D.
  Index cols() const { return goes_out() ? tokens.cols : sums.cols; }
};

}  // namespace moeloom
