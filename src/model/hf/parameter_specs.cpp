// Which parameters a model has, and what a checkpoint calls their parts.
//
// Weights that read the same input are one parameter (q, k, v; gate, up), so that one product serves them;
// most checkpoints keep them apart. A parameter's own name is the same in every family and file.
#include "model/hf/parameter_specs.hpp"

#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"

#include <utility>

#include "hf/adapter_specs.hpp"
#include "hf/parameter_parts.hpp"

namespace moeloom {
namespace {

/// In a model with experts its parts are called as an expert's are, where those have a block.
void add_mlp(Specs& specs, const Naming& naming, const MlpSpec& spec) {
  const std::string& at = spec.prefix;
  const ExpertNames names = naming.family.moe ? naming.family.moe->experts : ExpertNames();
  const std::string file = naming.family.moe ? naming.block(at) : naming.in_file(at);
  const Parts parts = {{file + names.gate, spec.width}, {file + names.up, spec.width}};
  add_fused(specs, at + "gate_up_proj", file + "gate_up_proj", spec.hidden_size,
            {parts, naming.family.fused_gate_up, spec.bias});
  add_linear_as(specs, at + "down_proj", file + names.down, {spec.hidden_size, spec.width, spec.bias});
}

void add_head(Specs& specs, const ModelConfig& config) {
  const std::string& name = config.names.prefix.head;
  if (!config.tie_word_embeddings)
    specs.push_back(matrix("lm_head.weight", config.hidden_size, {{name, config.vocab_size}}));
  if (!config.head_bias) return;
  const std::string of_bias = name.substr(0, name.rfind('.')) + ".bias";
  specs.push_back(bias("lm_head.bias", {{of_bias, config.vocab_size}}));
}

Specs layer_specs(const Naming& naming, const LayerSpec& layer, ExpertRange experts) {
  Specs specs;
  add_norm(specs, naming, layer.mixer_norm);
  add_mixer(specs, naming, layer.mixer);
  add_norm(specs, naming, layer.mixer_output_norm);
  add_norm(specs, naming, layer.feed_forward_norm);
  if (layer.moe) add_moe(specs, naming, *layer.moe, experts);
  if (layer.mlp) add_mlp(specs, naming, *layer.mlp);
  add_norm(specs, naming, layer.feed_forward_output_norm);
  return specs;
}

}  // namespace

std::vector<ParameterSpec> own_parameters(ModelConfig config) {
  config.adapter.reset();
  return parameter_specs(config, {0, config.num_experts});
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, ExpertRange experts) {
  const Naming naming = {config.family(), config.names};
  Specs specs;
  add_linear(specs, naming, "model.embed_tokens", {config.vocab_size, config.hidden_size});
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    for (ParameterSpec& spec : layer_specs(naming, config.layer(layer), experts)) {
      spec.layer = layer;
      specs.push_back(std::move(spec));
    }
  add_norm(specs, config.final_norm(), naming.in_file(kBody + naming.family.norms.last + ".weight"));
  add_head(specs, config);
  if (config.adapter) add_adapter(*config.adapter, parameters_of_adapter(config, experts), specs);
  return specs;
}

}  // namespace moeloom
