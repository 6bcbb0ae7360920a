// The arithmetic's ceiling: multiply-adds on registers alone, by so many busy threads.
//
// A shared machine's clock moves by half within seconds, so a peak is measured beside every sample, never
// once; and as long as the sample, because a short one slips between the interruptions that a long one meets.
// Of this rank alone, no collective.
#pragma once

#include "moeloom/tensor/dtype.hpp"

#include <optional>

namespace moeloom {

/// fp32 GFLOP/s of `threads` threads together, over at least so many seconds, a multiply-add counted as two.
/// There are no more threads than threads() of parallel.hpp has.
double fma_peak_gflops(int threads, double seconds);
/// fma_peak_gflops() of bf16 summed in fp32, of the fastest unit: tiles (tdpbf16ps) or pairs (vdpbf16ps);
/// none where the CPU has neither.
std::optional<double> bf16_peak_gflops(int threads, double seconds);

/// bf16_peak_gflops() for kBF16, which throws std::bad_optional_access where the CPU has neither unit;
/// fma_peak_gflops() for any other type.
double peak_gflops(DType type, int threads, double seconds);

}  // namespace moeloom
