// What PackedWeights holds: both faces of the masters.
#pragma once

#include "tile/packed_face.hpp"

namespace moeloom {

struct PackedWeights::State {
  packed::Face forward;     // right side w^T [in, out]
  packed::Face input_grad;  // right side w [out, in]
  DType element = DType::kF32;
  Index groups = 0;
  Index packings = 0;
};

}  // namespace moeloom
