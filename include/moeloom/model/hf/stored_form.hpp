// How a folder keeps weights that are not plain numbers: what its quantization_config says. Filled in when a
// folder is read; what is written is plain, so nothing is written back of it.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <string>

namespace moeloom {

enum class StoredAs {
  kPlain,  // F32, BF16 or F16
  kMxfp4,  // experts, as NAME_blocks and NAME_scales
  kFp8,    // some matrices as F8_E4M3 or F8_E5M2, each number times a scale in a tensor beside them
};

/// Of FP8 each of these that is said may be: the shape of a tensor's scale tells which it is. A tensor that
/// is not in FP8 is read as it is, whatever is said.
struct StoredForm {
  StoredAs as = StoredAs::kPlain;
  std::array<Index, 2> block = {0, 0};  // rows and columns that share a scale; 0: there are no such blocks
  bool of_rows = false;                 // a scale for each row
  bool of_tensors = false;              // one for a tensor, or for each matrix of a stack

  bool operator==(const StoredForm&) const = default;
  /// "a scale for each block of [128, 128]"
  std::string text() const;
};

}  // namespace moeloom
