// Which parameters a Qwen3-MoE model has, and what a checkpoint calls their parts.
//
// Weights that read the same input are one parameter (q, k, v; gate, up), so that one product serves them;
// a checkpoint keeps them apart.
#include "moeloom/model/parameters.hpp"

#include <utility>

namespace moeloom {
namespace {

using Parts = std::vector<std::pair<std::string, Index>>;  // names in the file and their rows

ParameterSpec matrix(const std::string& name, Index cols, const Parts& parts) {
  ParameterSpec spec;
  spec.name = name;
  spec.cols = cols;
  for (const auto& [part, rows] : parts) {
    spec.slices.push_back({part, spec.rows, rows, {rows, cols}});
    spec.rows += rows;
  }
  return spec;
}

ParameterSpec matrix(const std::string& name, Index rows, Index cols) {
  return matrix(name, cols, {{name, rows}});
}

ParameterSpec norm(const std::string& name, Index size) {
  ParameterSpec spec = matrix(name, 1, size);
  spec.slices.front().shape = {size};
  spec.is_matrix = false;
  spec.init = Init::kOnes;
  return spec;
}

ParameterSpec of_experts(ParameterSpec spec, const ModelConfig& config, ExpertRange experts) {
  spec.placement = Placement::kExperts;
  spec.groups = experts.count;
  spec.first_group = experts.begin;
  spec.total_groups = config.num_experts;
  return spec;
}

std::vector<ParameterSpec> attention_specs(const ModelConfig& config, const std::string& layer) {
  const std::string attention = layer + "self_attn.";
  return {norm(layer + "input_layernorm.weight", config.hidden_size),
          matrix(attention + "qkv_proj.weight", config.hidden_size,
                 {{attention + "q_proj.weight", config.attention_width()},
                  {attention + "k_proj.weight", config.kv_width()},
                  {attention + "v_proj.weight", config.kv_width()}}),
          norm(attention + "q_norm.weight", config.head_dim),
          norm(attention + "k_norm.weight", config.head_dim),
          matrix(attention + "o_proj.weight", config.hidden_size, config.attention_width()),
          norm(layer + "post_attention_layernorm.weight", config.hidden_size)};
}

std::vector<ParameterSpec> dense_specs(const ModelConfig& config, const std::string& mlp) {
  const Index width = config.intermediate_size;
  return {matrix(mlp + "gate_up_proj.weight", config.hidden_size,
                 {{mlp + "gate_proj.weight", width}, {mlp + "up_proj.weight", width}}),
          matrix(mlp + "down_proj.weight", config.hidden_size, width)};
}

std::vector<ParameterSpec> sparse_specs(const ModelConfig& config, const std::string& mlp,
                                        ExpertRange experts) {
  const Index width = config.moe_intermediate_size;
  Parts gate_up;
  Parts down;
  for (Index id = experts.begin; id < experts.begin + experts.count; ++id) {
    const std::string expert = mlp + "experts." + std::to_string(id) + ".";
    gate_up.emplace_back(expert + "gate_proj.weight", width);
    gate_up.emplace_back(expert + "up_proj.weight", width);
    down.emplace_back(expert + "down_proj.weight", config.hidden_size);
  }
  return {matrix(mlp + "gate.weight", config.num_experts, config.hidden_size),
          of_experts(matrix(mlp + "experts.gate_up_proj", config.hidden_size, gate_up), config, experts),
          of_experts(matrix(mlp + "experts.down_proj", width, down), config, experts)};
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, ExpertRange experts) {
  std::vector<ParameterSpec> specs = {
      matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size)};
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    const auto append = [&](const std::vector<ParameterSpec>& more) {
      for (ParameterSpec spec : more) {
        spec.layer = layer;
        specs.push_back(std::move(spec));
      }
    };
    append(attention_specs(config, name));
    append(config.is_sparse(layer) ? sparse_specs(config, name + "mlp.", experts)
                                   : dense_specs(config, name + "mlp."));
  }
  specs.push_back(norm("model.norm.weight", config.hidden_size));
  if (!config.tie_word_embeddings)
    specs.push_back(matrix("lm_head.weight", config.vocab_size, config.hidden_size));
  return specs;
}

}  // namespace moeloom
