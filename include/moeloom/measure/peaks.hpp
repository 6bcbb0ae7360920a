// The arithmetic's ceiling: multiply-adds on registers alone, by so many busy threads.
//
// A shared machine's clock moves by half within seconds, so a peak is measured beside every sample, never
// once; and as long as the sample, because a short one slips between the interruptions that a long one meets.
#pragma once

#include "moeloom/tensor/dtype.hpp"

#include <optional>

namespace moeloom {

/// fp32 GFLOP/s of `threads` threads together, over about so many seconds. Counts a multiply-add as two.
double fma_peak_gflops(int threads, double seconds);
/// The same for bf16 summed in fp32, of the fastest unit: tiles (tdpbf16ps) or pairs (vdpbf16ps); none where
/// the CPU has neither.
std::optional<double> bf16_peak_gflops(int threads, double seconds);

/// Of what products of this type are measured against; throws std::bad_optional_access where there is none.
double peak_gflops(DType type, int threads, double seconds);

}  // namespace moeloom
