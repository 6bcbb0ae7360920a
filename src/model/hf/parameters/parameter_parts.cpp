#include "hf/parameters/parameter_parts.hpp"

namespace moeloom {
namespace {

/// A row of numbers. One that scales by offset + weight starts by scaling by 1.
ParameterSpec norm_weight(const NormSpec& norm, const std::string& in_file) {
  ParameterSpec spec = matrix(norm.name, norm.width, {{in_file, 1}});
  spec.slices.front().shape = {norm.width};
  spec.is_matrix = false;
  spec.init = norm.settings.weight_offset == 0 ? Init::kOnes : Init::kZeros;
  return spec;
}

}  // namespace

void add_norm(Specs& specs, const NormSpec& spec, const std::string& in_file) {
  specs.push_back(norm_weight(spec, in_file));
  if (spec.kind != NormKind::kLayer) return;
  NormSpec of_bias = spec;
  of_bias.name = in_file;
  specs.push_back(bias(spec.bias_name(), {{of_bias.bias_name(), spec.width}}));
}

void add_norm(Specs& specs, const Naming& naming, const std::optional<NormSpec>& spec) {
  if (spec) add_norm(specs, *spec, naming.in_file(spec->name));
}

void add_linear_as(Specs& specs, const std::string& name, const std::string& in_file, LinearShape shape) {
  specs.push_back(matrix(name + ".weight", shape.cols, {{in_file + ".weight", shape.rows}}));
  if (shape.with_bias) specs.push_back(bias(name + ".bias", {{in_file + ".bias", shape.rows}}));
}

void add_fused(Specs& specs, const std::string& name, const std::string& file_name, Index cols, Fused fused) {
  auto& [parts, in_file, with_bias] = fused;
  Index rows = 0;
  for (const auto& [part, part_rows] : parts) rows += part_rows;
  if (in_file) parts = {{file_name, rows}};
  const auto ending = [&](const char* end) {
    Parts named;
    for (const auto& [part, part_rows] : parts) named.emplace_back(part + end, part_rows);
    return named;
  };
  specs.push_back(matrix(name + ".weight", cols, ending(".weight")));
  if (with_bias) specs.push_back(bias(name + ".bias", ending(".bias")));
}

}  // namespace moeloom
