// What the tensors of a model's folder are called. Filled in when a folder is read, and used again when it is
// written; a caller need not look inside.
#pragma once

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
/// they are, but for those in FP8 with scales, which become bf16. Their files stay mapped, and readable when the folder is removed.
struct CarriedTensors {
  std::shared_ptr<const SafetensorsFolder> source;  // null where there are none
  std::vector<std::string> names;
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
