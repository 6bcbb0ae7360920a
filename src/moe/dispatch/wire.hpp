// A row as it travels between ranks: its fp32 numbers, or the same rounded to bf16, two in the place of one.
//
// A wire row is a row of floats whose bits need not be numbers, so that every exchange moves either kind.
// Column i shares its place with column i + ceil(cols / 2): both directions are then plain vector code.
#pragma once

#include "moeloom/job/dispatcher_kind.hpp"

namespace moeloom {

/// Floats' worth of bits of a row.
inline Index wire_cols(Index cols, WireDType type) {
  return type == WireDType::kFp32 ? cols : ceil_div(cols, 2);
}
/// row [cols] -> wire [wire_cols(cols)]; rounds to nearest, ties to even, and NaN stays NaN.
void to_wire(const float* row, Index cols, WireDType type, float* wire);
/// wire [wire_cols(cols)] -> row [cols].
void from_wire(const float* wire, Index cols, WireDType type, float* row);

}  // namespace moeloom
