// A model as an adapter calls it.
//
// That may be otherwise than the model's folder does: transformers 5 stacks experts that a folder lists, and
// calls a block of them "mlp" that a folder calls "block_sparse_moe".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "hf/adapter/adapter_names.hpp"
#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {

/// Behind the path of a block of experts, of which two stacks have factors: those of the first.
inline const std::string kInnerPath = ".base_layer";

/// What the tensors of one path may be of: a module, or some stacks of a block of experts.
struct Place {
  const ParameterSpec* base;
  Index rows;     // of one module
  bool is_stack;  // of all experts in one tensor
  std::string module;
};
using Places = std::multimap<std::string, Place>;

/// The model as an adapter calls it.
struct NamedModel {
  std::optional<CheckpointNames> names;  // none: as its folder
  Specs specs;
  Places places;
};

/// Of the ways to call the model that one in which most of these paths have a place, the folder's own first.
NamedModel model_named_by(const AdapterNames& found, const ModelConfig& config);

}  // namespace moeloom
