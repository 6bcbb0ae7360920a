// Tokens whose router makes the choices that a benchmark wants: its weight is the identity on the first E
// values of a token, which are the logits. So what is measured is the layer that trains, its router among the
// rest.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// Makes the weight [E, D] of a router one that reads logits. Throws ShapeError for D < E.
void read_logits(MatrixView router);

/// Puts logits that choose topk_idx [T, K] into the first `experts` values of tokens [T, D], far apart, so
/// that the layers of an untrained model before a router do not change the choice.
void write_logits(std::span<const std::int32_t> topk_idx, Index experts, MatrixView tokens);

}  // namespace moeloom
