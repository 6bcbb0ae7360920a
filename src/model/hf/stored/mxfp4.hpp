// Tensors that a checkpoint keeps in MXFP4 (OCP Microscaling Formats 1.0), as GPT-OSS's experts: NAME_blocks
// and NAME_scales stand for NAME [E, in, out].
//
//   blocks   U8 [E, out, in / 32, 16], two FP4 E2M1 numbers a byte, the low four bits first
//   scales   U8 [E, out, in / 32], an exponent of two + 127 a block; 255 is NaN
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/io/safetensors.hpp"

#include <array>
#include <string>

namespace moeloom {

/// Of blocks and scales.
std::array<std::string, 2> mxfp4_parts(const std::string& name);
/// Whether the folder has both parts, and the tensor itself is not there.
bool is_in_mxfp4(const SafetensorsFolder& folder, const std::string& name);
/// What is wrong with the parts of a tensor of this shape, with their names; empty if nothing is.
std::string mxfp4_complaint(const SafetensorsFolder& folder, const std::string& name,
                            const std::vector<Index>& shape);
/// As read_slice(), of parts without a complaint; a slice of columns.
void read_mxfp4(const SafetensorsFolder& folder, const HfSlice& slice, MatrixView rows);

}  // namespace moeloom
