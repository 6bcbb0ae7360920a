// oneDNN, one product an expert, straight from the masters: the rival that grouped_matmul_bench measures
// beside ours where CMake found the library (MOELOOM_HAS_ONEDNN).
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

namespace moeloom::bench {

/// fp32 alone. Sources are one sum in the order of rows, and oneDNN chooses the order inside a product.
GroupedMatmulKernel onednn_grouped_matmul();

}  // namespace moeloom::bench
