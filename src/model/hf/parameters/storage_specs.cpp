// How the parameters of a model are stored.
#include "model/hf/parameters/parameter_specs.hpp"

#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {

bool may_be_half(const ParameterSpec& spec) {
  const std::string kind = adapted_kind(spec);
  return (!kind.empty() && kind != "router") || spec.name == "model.embed_tokens.weight" ||
         spec.name == "model.embed_tokens_per_layer.weight" || spec.name == "lm_head.weight";
}

std::vector<ParameterSpec> with_storage(Specs specs, Storage masters, Storage frozen) {
  for (ParameterSpec& spec : specs) {
    if (!may_be_half(spec)) continue;
    if (!spec.frozen)
      spec.stored = masters;
    else if (frozen != Storage::kFp32)
      spec.stored = frozen;
  }
  return specs;
}

std::vector<ParameterSpec> with_gradients(Specs specs, Storage gradients) {
  for (ParameterSpec& spec : specs)
    if (spec.placement == Placement::kExperts && spec.is_matrix && !spec.frozen && !spec.adapter)
      spec.gradient = gradients;
  return specs;
}

}  // namespace moeloom
