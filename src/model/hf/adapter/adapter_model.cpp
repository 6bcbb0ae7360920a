#include "hf/adapter/adapter_model.hpp"

#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

/// All of a model's, by path.
Places places_of(const Specs& specs) {
  Places places;
  for (const ParameterSpec& spec : specs) {
    if (adapted_kind(spec).empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      std::string last;  // of a stack every group has the same
      for (const std::string& module : part.modules) {
        if (std::exchange(last, module) == module) continue;
        const std::string path = path_in_adapter(module, {});
        const Place place = {&spec, part.rows, part.stack.has_value(), module};
        places.insert({path, place});
        if (path != module) places.insert({path + kInnerPath, place});
      }
    }
  }
  return places;
}

/// The folder's own names, and then the others that an adapter may have.
std::vector<CheckpointNames> namings_of(const ModelConfig& config) {
  std::vector<CheckpointNames> namings = {config.names};
  const std::optional<MoeRule>& rule = config.family().moe;
  if (!rule) return namings;
  const bool has_one_layout = rule->transposed || rule->stack.gate_up != StackNames().gate_up;
  std::vector<ExpertLayout> layouts = {config.names.experts};
  if (!has_one_layout) layouts = {ExpertLayout::kList, ExpertLayout::kStacked};
  for (const ExpertLayout layout : layouts)
    for (const std::string& block : {rule->block, std::string("mlp")}) {
      namings.push_back(config.names);
      namings.back().experts = layout;
      namings.back().block = block;
      if (memory_names(config.family(), block).empty()) continue;
      namings.push_back(namings.back());
      namings.back().as_in_memory = !config.names.as_in_memory;
    }
  return namings;
}

}  // namespace

NamedModel model_named_by(const AdapterNames& found, const ModelConfig& config) {
  NamedModel best;
  Index most = -1;
  for (const CheckpointNames& names : namings_of(config)) {
    if (most == std::ssize(found.paths)) break;
    ModelConfig named = config;
    named.names = names;
    Specs specs = own_parameters(std::move(named));
    Places places = places_of(specs);
    const Index placed =
        std::ranges::count_if(found.paths, [&](const auto& path) { return places.contains(path.first); });
    if (placed <= most) continue;
    best = {most < 0 ? std::nullopt : std::optional(names), std::move(specs), std::move(places)};
    most = placed;
  }
  return best;
}

}  // namespace moeloom
