// One slice of a parameter to and from its place in a checkpoint's tensor, which may be a part of a stack and
// may be transposed there.
#pragma once

#include "io/safetensors_shards.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"

namespace moeloom {

/// Where element i of the slice's rows [rows, cols], counted along the rows, lies in the file's tensor.
Index place_in_file(const HfSlice& slice, Index cols, Index i);

/// rows: the slice's part of a parameter, contiguous. Touches no other bytes of the tensor, which a folder
/// may have in FP8, as `form` says, or in MXFP4 (NAME_blocks and NAME_scales).
void read_slice(const SafetensorsFolder& folder, const StoredForm& form, const HfSlice& slice,
                MatrixView rows);
void read_slice(const SafetensorsFile& file, const HfSlice& slice, MatrixView rows);
void write_slice(ShardWriter& writer, const HfSlice& slice, ConstMatrixView rows);

/// Slices of one tensor whose elements alternate: of the same rows and columns, in steps, each begins an
/// element behind the one before. They are written together, in runs.
bool alternates_with(const HfSlice& slice, const HfSlice& before);
void write_slices(ShardWriter& writer, std::span<const HfSlice* const> slices,
                  std::span<const ConstMatrixView> rows);

/// What is wrong with a slice of a parameter with so many columns: it must lie in its tensor. Empty if
/// nothing is.
std::string slice_violation(const HfSlice& slice, Index cols);

/// The tensor's name, and behind @ where it begins if the tensor holds other slices, too.
std::string slice_key(const HfSlice& slice, Index cols);

}  // namespace moeloom
