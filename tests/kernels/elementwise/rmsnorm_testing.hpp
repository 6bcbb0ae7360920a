// Both RMSNorms by name, and the sizes that tests of plain and gated norms give them.
#pragma once

#include "moeloom/kernels/elementwise/rmsnorm.hpp"

namespace moeloom::testing {

struct NamedRmsNorm {
  const char* name;
  RmsNormKernel kernel;
};
inline const NamedRmsNorm kRmsNorms[] = {{"reference", reference_rmsnorm()}, {"fused", fused_rmsnorm()}};

struct RmsNormSize {
  Index rows, groups, width;
};

}  // namespace moeloom::testing
