// What the tensors of a model's folder are called, and how it keeps their numbers. Filled in when a folder is
// read; names are used again when it is written, numbers are then plain. A caller need not look inside.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace moeloom {

struct Family;  // the library's own row for a model_type
class SafetensorsFolder;

/// How a checkpoint keeps the E experts of a layer.
enum class ExpertLayout {
  kList,               // a tensor for each expert and projection
  kStacked,            // gate_up_proj [E, 2F, D], down_proj [E, D, F]
  kStackedTransposed,  // gate_up_proj [E, D, 2F], down_proj [E, F, D]
  kStackedInterleaved  // as kStackedTransposed, with gate and up in columns 0, 2, 4, ... and 1, 3, 5, ...
};

/// What stands before the names of the text model's tensors, and the name of its head.
struct FilePrefix {
  std::string body = "model.";
  std::string head = "lm_head.weight";
};

/// Tensors that a folder holds beside the model, as a vision tower: they are not trained, and written back as
/// they are, but for those in FP8 with scales, which become bf16. Their files stay mapped, and readable when
/// the folder is removed.
struct CarriedTensors {
  std::shared_ptr<const SafetensorsFolder> source;  // null where there are none
  std::vector<std::string> names;
};

/// What a folder's quantization_config says of its weights.
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

/// What a folder's tensors are called beyond what the family says; it is kept when the model is written back.
struct CheckpointNames {
  FilePrefix prefix;
  std::string block = "mlp";  // around the experts and their router
  ExpertLayout experts = ExpertLayout::kList;
  /// Router and stacked experts have the names of transformers 5 in memory, not those of its files.
  bool as_in_memory = false;
  CarriedTensors carried;
};

/// The names of a folder with these tensors, without what is carried; where the tensors do not say, the
/// family's own. No collective.
CheckpointNames checkpoint_names(const Family& family, const std::vector<std::string>& tensors);

}  // namespace moeloom
