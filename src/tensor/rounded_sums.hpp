// Sums in fp32 that are kept as bf16: each is rounded to the nearest once, when it is written.
#pragma once

#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/rows.hpp"

namespace moeloom {

/// target [R, C] = sums, or target + sums; by the calling thread.
void write_rounded(ConstMatrixView sums, Bf16View target, Write mode);

/// One row of it, count numbers. streams: nobody reads it soon, so that whole lines may go past the caches;
/// finish_rounded_streams() comes after the last of them.
void write_rounded_row(const float* sums, Index count, bool streams, std::uint16_t* target);
void finish_rounded_streams();

}  // namespace moeloom
