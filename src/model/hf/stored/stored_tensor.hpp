// A tensor of a folder as numbers: as it is there, or in FP8 times the scales of its blocks.
//
// NAME_scale_inv or NAME_scale is the tensor with the scales of NAME; both are factors, whatever the first is
// called. The last block of a row or column may be shorter.
#pragma once

#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace moeloom {

bool is_fp8(DType type);

/// The tensor with the scales of `name`; empty where the folder has none.
std::string scale_of(const SafetensorsFolder& folder, const std::string& name);
/// Whether the form is FP8, and this tensor is in it: it is read as numbers.
bool has_scales(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name);
/// Whether this tensor holds the scales of one with scales.
bool is_scale(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name);
/// Whether a tensor has scales of activations or of caches beside weights in FP8: here they are never in it.
bool is_of_activations(const StoredForm& form, const std::string& name);
/// What is wrong with a tensor in FP8, or with its scales; empty if nothing is.
std::string fp8_complaint(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name);

/// Where the scale of an element lies: matrices one below the other, in each of which blocks begin anew.
struct ScaleGrid {
  Index rows = 1, cols = 1;              // of a matrix
  Index block_rows = 1, block_cols = 1;  // at most those
  Index scale_rows() const { return (rows + block_rows - 1) / block_rows; }
  Index scale_cols() const { return (cols + block_cols - 1) / block_cols; }
  /// The row of scales for a row of all matrices.
  Index line(Index row) const { return row / rows * scale_rows() + row % rows / block_rows; }
};

/// Borrows the folder; what the names of a file cost is paid once, however many stretches are read.
class StoredTensor {
 public:
  /// Throws ConfigError with fp8_complaint(), IoError for a tensor that is absent.
  StoredTensor(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name);
  /// As it is there.
  StoredTensor(const SafetensorsFile& file, const std::string& name);

  /// Elements [begin, begin + target.size()) as fp32. Throws ShapeError where they do not lie inside.
  void read(Index begin, std::span<float> target) const;
  /// use(first, numbers) for elements [begin, begin + count), a stretch after the other, read by all threads.
  void for_stretches(Index begin, Index count,
                     const std::function<void(Index, std::span<const float>)>& use) const;

 private:
  void read_fp8(Index begin, std::span<float> target) const;

  std::string name_;
  std::optional<ScaleGrid> grid_;  // none: it is read as it is
  DType type_, scale_type_ = DType::kF32;
  std::span<const std::byte> numbers_, scales_ = {};
};

}  // namespace moeloom
