// The arithmetic's ceiling: multiply-adds on registers alone, by so many busy threads.
//
// A shared machine's clock moves by half within seconds, so a peak is measured beside every sample, never
// once.
#pragma once

#include <optional>

namespace moeloom::bench {

/// fp32 GFLOP/s of `threads` threads together, over a few milliseconds. Counts a multiply-add as two.
double fma_peak_gflops(int threads);
/// The same for bf16 pairs accumulated in fp32 (vdpbf16ps); none where the CPU has no such instruction.
std::optional<double> bf16_peak_gflops(int threads);

}  // namespace moeloom::bench
