// Which parameters a model has, and what a checkpoint calls their parts.
//
// Weights that read the same input are one parameter (q, k, v; gate, up), so that one product serves them;
// most checkpoints keep them apart. A parameter's own name is the same in every family and file.
#include "moeloom/model/hf/family.hpp"
#include "moeloom/model/layer_spec.hpp"
#include "moeloom/model/parameters.hpp"

#include <utility>

#include "hf/parameter_parts.hpp"

namespace moeloom {
namespace {

/// One that scales by offset + weight starts by scaling by 1.
ParameterSpec norm(const Naming& naming, const std::string& name, Index size, RmsNormSettings settings) {
  ParameterSpec spec = matrix(name, size, {{naming.in_file(name), 1}});
  spec.slices.front().shape = {size};
  spec.is_matrix = false;
  spec.init = settings.weight_offset == 0 ? Init::kOnes : Init::kZeros;
  return spec;
}

ParameterSpec norm(const Naming& naming, const NormSpec& spec) {
  return norm(naming, spec.name, spec.width, spec.settings);
}

/// A weight that is one tensor of the file, and its bias.
void add_linear(Specs& specs, const Naming& naming, const std::string& name, Index rows, Index cols,
                bool with_bias = false) {
  specs.push_back(matrix(name + ".weight", cols, {{naming.in_file(name) + ".weight", rows}}));
  if (with_bias) specs.push_back(bias(name + ".bias", {{naming.in_file(name) + ".bias", rows}}));
}

/// What a weight is made of that is several, unless the family fuses them too.
struct Fused {
  Parts parts;
  bool in_file = false;
  bool with_bias = false;
};

void add_fused(Specs& specs, const Naming& naming, const std::string& name, Index cols, Fused fused) {
  auto& [parts, in_file, with_bias] = fused;
  Index rows = 0;
  for (const auto& [part, part_rows] : parts) rows += part_rows;
  if (in_file) parts = {{name, rows}};
  const auto ending = [&](const char* end) {
    Parts named;
    for (const auto& [part, part_rows] : parts) named.emplace_back(naming.in_file(part) + end, part_rows);
    return named;
  };
  specs.push_back(matrix(name + ".weight", cols, ending(".weight")));
  if (with_bias) specs.push_back(bias(name + ".bias", ending(".bias")));
}

void add_latent(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  const LatentSpec& latent = *spec.latent;
  const std::string& at = spec.prefix;
  const Index d = spec.hidden_size;
  if (latent.q_rank > 0) {
    add_linear(specs, naming, at + "q_a_proj", latent.q_rank, d, spec.qkv_bias);
    specs.push_back(norm(naming, at + "q_a_layernorm.weight", latent.q_rank, latent.norm));
    add_linear(specs, naming, at + "q_b_proj", spec.query_width(), latent.q_rank);
  } else {
    add_linear(specs, naming, at + "q_proj", spec.query_width(), d);
  }
  add_linear(specs, naming, at + "kv_a_proj_with_mqa", latent.kv_rank + latent.rope_dim, d, spec.qkv_bias);
  specs.push_back(norm(naming, at + "kv_a_layernorm.weight", latent.kv_rank, latent.norm));
  add_linear(specs, naming, at + "kv_b_proj", spec.heads * (latent.nope_dim + spec.value_dim),
             latent.kv_rank);
}

void add_qk_norms(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  if (spec.qk_norm == QkNorm::kNone) return;
  const bool whole = spec.qk_norm == QkNorm::kWholeWidth;
  specs.push_back(
      norm(naming, spec.prefix + "q_norm.weight", whole ? spec.query_width() : spec.head_dim, spec.norm));
  specs.push_back(
      norm(naming, spec.prefix + "k_norm.weight", whole ? spec.key_width() : spec.head_dim, spec.norm));
}

void add_attention(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  const std::string& at = spec.prefix;
  if (spec.latent) {
    add_latent(specs, naming, spec);
  } else {
    const Parts parts = {{at + "q_proj", spec.query_width()},
                         {at + "k_proj", spec.key_width()},
                         {at + "v_proj", spec.value_width()}};
    add_fused(specs, naming, at + "qkv_proj", spec.hidden_size,
              {parts, naming.family.fused_qkv, spec.qkv_bias});
    add_qk_norms(specs, naming, spec);
  }
  add_linear(specs, naming, at + "o_proj", spec.hidden_size, spec.output_width(), spec.output_bias);
}

void add_mlp(Specs& specs, const Naming& naming, const MlpSpec& spec) {
  const std::string& at = spec.prefix;
  const Parts parts = {{at + "gate_proj", spec.width}, {at + "up_proj", spec.width}};
  add_fused(specs, naming, at + "gate_up_proj", spec.hidden_size,
            {parts, naming.family.fused_gate_up, spec.bias});
  add_linear(specs, naming, at + "down_proj", spec.hidden_size, spec.width, spec.bias);
}

Specs layer_specs(const Naming& naming, const LayerSpec& layer, ExpertRange experts) {
  Specs specs = {norm(naming, layer.attention_norm)};
  add_attention(specs, naming, layer.attention);
  if (layer.attention_output_norm) specs.push_back(norm(naming, *layer.attention_output_norm));
  specs.push_back(norm(naming, layer.feed_forward_norm));
  if (layer.moe) add_moe(specs, naming, *layer.moe, experts);
  if (layer.mlp) add_mlp(specs, naming, *layer.mlp);
  if (layer.feed_forward_output_norm) specs.push_back(norm(naming, *layer.feed_forward_output_norm));
  return specs;
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, ExpertRange experts) {
  const Naming naming = {config.family(), config.names};
  Specs specs;
  add_linear(specs, naming, "model.embed_tokens", config.vocab_size, config.hidden_size);
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    for (ParameterSpec& spec : layer_specs(naming, config.layer(layer), experts)) {
      spec.layer = layer;
      specs.push_back(std::move(spec));
    }
  specs.push_back(norm(naming, config.final_norm()));
  if (!config.tie_word_embeddings)
    specs.push_back(
        matrix("lm_head.weight", config.hidden_size, {{config.names.prefix.head, config.vocab_size}}));
  return specs;
}

}  // namespace moeloom
