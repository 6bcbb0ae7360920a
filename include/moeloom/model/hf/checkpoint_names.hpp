// What the tensors of a model's folder are called.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace moeloom {

struct Family;
class SafetensorsFolder;

/// How a checkpoint keeps the experts of a layer.
enum class ExpertLayout {
  kList,               // a tensor an expert and projection
  kStacked,            // gate_up_proj [E, 2F, D], down_proj [E, D, F]
  kStackedTransposed,  // gate_up_proj [E, D, 2F], down_proj [E, F, D]
  kStackedInterleaved  // the same with gate and up in columns 0, 2, 4, ... and 1, 3, 5, ...
};

/// Where a file keeps the text model.
struct FilePrefix {
  std::string body = "model.";
  std::string head = "lm_head.weight";
};

/// Tensors that a folder holds beside the model (is_carried): they are not trained, and written back as they
/// are. The mapped files stay readable when the folder is removed.
struct CarriedTensors {
  std::shared_ptr<const SafetensorsFolder> source;  // null where there are none
  std::vector<std::string> names;
};

/// What a folder's tensors are called beyond what the family says; it is kept when the model is written back.
struct CheckpointNames {
  FilePrefix prefix;
  std::string block = "mlp";  // around the experts and their router
  ExpertLayout experts = ExpertLayout::kList;
  bool as_in_memory =
      false;  // router and stacks, where transformers 5 has other names for them than files have
  CarriedTensors carried;
};

/// The names of a folder with these tensors, without what is carried; where they do not say, the family's
/// own.
CheckpointNames checkpoint_names(const Family& family, const std::vector<std::string>& tensors);

}  // namespace moeloom
