// What a token mixer costs, forward and backward.
//
// Letters: T tokens of a rank and micro-batch, S of a sequence, D hidden size.
#pragma once

#include "model/parts/layer_spec.hpp"

namespace moeloom {

/// 6 T (sum of out * in of its dense products): forward 2, input gradient 2, weight gradient 2.
double mixer_product_flops(const MixerSpec& mixer, Index tokens);

/// Between tokens. Attention: T (S + 1) / 2 pairs of query and key a head, or T w under a window w < S, or
/// those of chunks; each 8 head_dim + 6 value_dim. A delta net: those of delta_rule.hpp, which are taken to
/// run at the rate of attention's products. A short convolution: none, it is all reading and writing.
double mixing_flops(const MixerSpec& mixer, Index tokens, Index sequence_length);

/// Copy, norm both ways, residual both ways: 10 T D. Attention turns q and k and perhaps norms them: 4 or 9 T
/// (q + k). A convolution over C channels reads and writes 5 T C both ways, with gates before and behind it
/// 11 T C; the gated norm of a delta net 8 T V.
double mixer_elementwise_bytes(const MixerSpec& mixer, Index tokens);

}  // namespace moeloom
