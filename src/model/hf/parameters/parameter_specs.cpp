// Which parameters a model has, and what a checkpoint calls their parts.
//
// Weights that read the same input are one parameter (q, k, v; gate, up), so that one product serves them;
// most checkpoints keep them apart. A parameter's own name is the same in every family and file.
#include "model/hf/parameters/parameter_specs.hpp"

#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"

#include <utility>

#include "hf/parameters/adapter_specs.hpp"
#include "hf/parameters/parameter_parts.hpp"

namespace moeloom {
namespace {

/// In a model with experts its parts are called as an expert's are, where those have a block.
void add_mlp(Specs& specs, const Naming& naming, const MlpSpec& spec) {
  const std::string& at = spec.prefix;
  const bool as_experts = naming.family.moe && !naming.names.block.empty();
  const ExpertNames names = as_experts ? naming.family.moe->experts : ExpertNames();
  const std::string file = as_experts ? naming.block(at) : naming.in_file(at);
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

/// What a layer has of each token beside its hidden state.
void add_per_layer_input(Specs& specs, const Naming& naming, const PerLayerInputSpec& spec) {
  add_linear(specs, naming, spec.prefix + "per_layer_input_gate", {spec.width, spec.hidden_size});
  add_linear(specs, naming, spec.prefix + "per_layer_projection", {spec.hidden_size, spec.width});
  add_norm(specs, naming, spec.norm);
}

/// A number that no gradient moves.
ParameterSpec scalar(const Naming& naming, const std::string& name) {
  ParameterSpec parameter = bias(name, {{naming.in_file(name), 1}});
  parameter.init = Init::kOnes;
  parameter.frozen = true;
  return parameter;
}

void add_embeddings(Specs& specs, const Naming& naming, const ModelConfig& config) {
  add_linear(specs, naming, "model.embed_tokens", {config.vocab_size, config.hidden_size});
  const std::optional<PerLayerEmbeddingSpec> of_layers = config.per_layer_embedding();
  if (!of_layers) return;
  const Index width = of_layers->layers * of_layers->width;
  add_linear(specs, naming, "model.embed_tokens_per_layer", {of_layers->vocab_size, width});
  add_linear(specs, naming, "model.per_layer_model_projection", {width, config.hidden_size});
  add_norm(specs, naming, of_layers->norm);
}

Specs layer_specs(const Naming& naming, const LayerSpec& layer, ExpertRange experts) {
  Specs specs;
  add_norm(specs, naming, layer.mixer_norm);
  add_mixer(specs, naming, layer.mixer);
  add_norm(specs, naming, layer.mixer_output_norm);
  add_norm(specs, naming, layer.feed_forward_norm);
  if (layer.moe) add_moe(specs, naming, *layer.moe, experts);
  if (layer.mlp) add_mlp(specs, naming, *layer.mlp);
  if (layer.side_by_side) {
    add_norm(specs, naming, layer.side_by_side->mlp_output);
    add_norm(specs, naming, layer.side_by_side->experts_input);
    add_norm(specs, naming, layer.side_by_side->experts_output);
  }
  add_norm(specs, naming, layer.feed_forward_output_norm);
  if (layer.per_layer_input) add_per_layer_input(specs, naming, *layer.per_layer_input);
  if (!layer.scalar.empty()) specs.push_back(scalar(naming, layer.scalar));
  return specs;
}

/// Of a layer's tensors, which lie behind `layer`, the names that they have in memory.
void rename_as_in_memory(Specs& specs, const Naming& naming, const std::string& layer) {
  const std::vector<MemoryName> names = memory_names(naming.family, naming.names.block);
  for (ParameterSpec& spec : specs)
    for (HfSlice& slice : spec.slices) slice.name = layer + in_memory(names, slice.name.substr(layer.size()));
}

}  // namespace

std::vector<ParameterSpec> own_parameters(ModelConfig config) {
  config.adapter.reset();
  return parameter_specs(config, {0, config.num_experts});
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, ExpertRange experts) {
  const Naming naming = {config.family(), config.names};
  Specs specs;
  add_embeddings(specs, naming, config);
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    Specs of_layer = layer_specs(naming, config.layer(layer), experts);
    if (config.names.as_in_memory)
      rename_as_in_memory(of_layer, naming, naming.in_file(kBody + "layers." + std::to_string(layer) + "."));
    for (ParameterSpec& spec : of_layer) {
      spec.layer = layer;
      specs.push_back(std::move(spec));
    }
  }
  add_norm(specs, config.final_norm(), naming.in_file(kBody + naming.family.norms.last + ".weight"));
  add_head(specs, config);
  if (config.adapter) add_adapter(*config.adapter, parameters_of_adapter(config, experts), specs);
  return specs;
}

}  // namespace moeloom
