// What lists of parameters are made of: names in a folder, and parameters whose rows are tensors of it.
#pragma once

#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"

#include <string>
#include <utility>
#include <vector>

namespace moeloom {

using Parts = std::vector<std::pair<std::string, Index>>;  // names in the file and their rows
using Specs = std::vector<ParameterSpec>;

inline const std::string kBody = "model.";  // before the names of parameters

/// Where a folder keeps a layer, and how.
struct Naming {
  const Family& family;
  const CheckpointNames& names;

  /// In the file: `parameter` with the folder's prefix.
  std::string in_file(const std::string& parameter) const {
    return names.prefix.body + parameter.substr(kBody.size());
  }
  /// Of the layer whose experts' block is at `prefix` ("model.layers.0.mlp.").
  std::string layer(const std::string& prefix) const {
    return in_file(prefix.substr(0, prefix.size() - std::string("mlp.").size()));
  }
  /// Of that block.
  std::string block(const std::string& prefix) const {
    return layer(prefix) + (names.block.empty() ? "" : names.block + ".");
  }
};

inline ParameterSpec matrix(const std::string& name, Index cols, const Parts& parts) {
  ParameterSpec spec;
  spec.name = name;
  spec.cols = cols;
  for (const auto& [part, rows] : parts) {
    spec.slices.push_back({.name = part, .row_begin = spec.rows, .rows = rows, .shape = {rows, cols}});
    spec.rows += rows;
  }
  return spec;
}

/// Numbers one below the other.
inline ParameterSpec bias(const std::string& name, const Parts& parts) {
  ParameterSpec spec = matrix(name, 1, parts);
  for (HfSlice& slice : spec.slices) slice.shape = {slice.rows};
  spec.is_matrix = false;
  spec.init = Init::kZeros;
  return spec;
}

void add_norm(Specs& specs, const NormSpec& spec, const std::string& in_file);
void add_norm(Specs& specs, const Naming& naming, const std::optional<NormSpec>& spec);

/// A weight that is one tensor of the file, and its bias.
struct LinearShape {
  Index rows, cols;
  bool with_bias = false;
};
/// name.weight and name.bias, in the file in_file.weight and in_file.bias.
void add_linear_as(Specs& specs, const std::string& name, const std::string& in_file, LinearShape shape);
inline void add_linear(Specs& specs, const Naming& naming, const std::string& name, LinearShape shape) {
  add_linear_as(specs, name, naming.in_file(name), shape);
}

/// What a weight is made of that is several tensors of a file, unless the family fuses them too.
struct Fused {
  Parts parts;
  bool in_file = false;
  bool with_bias = false;
};
void add_fused(Specs& specs, const std::string& name, const std::string& file_name, Index cols, Fused fused);

/// What mixes the tokens of a layer.
void add_mixer(Specs& specs, const Naming& naming, const MixerSpec& mixer);

/// A block of experts: router, experts, shared expert.
void add_moe(Specs& specs, const Naming& naming, const MoeSpec& spec, ExpertRange experts);

}  // namespace moeloom
