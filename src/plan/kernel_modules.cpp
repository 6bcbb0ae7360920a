#include "plan/kernel_modules.hpp"

#include "base/text.hpp"
#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

/// One module of one layer, before it is known which kernels apply.
struct Module {
  std::string name;
  std::string kernel;  // id; empty: no named kernel replaces it
  std::string what;
  bool operator==(const Module&) const = default;
};
using Modules = std::vector<Module>;

std::string count(Index n, const char* what) {
  return std::to_string(n) + " " + what;
}

std::string product(Index in, Index out) {
  return std::to_string(in) + " -> " + std::to_string(out);
}

/// "norm" of "model.norm.weight", in a layer "input_layernorm" of "model.layers.0.input_layernorm.weight".
std::string module_of(const std::string& parameter) {
  const std::size_t end = parameter.rfind('.');
  const std::size_t begin = parameter.rfind('.', end - 1) + 1;
  return parameter.substr(begin, end - begin);
}

Module norm_module(const std::string& name, Index width, const RmsNormSettings& settings) {
  return {name, "fused_rmsnorm",
          std::string("RMSNorm") + (settings.weight_offset == 0 ? "" : " times 1 + w") + " over " +
              std::to_string(width)};
}

Module norm_module(const NormSpec& spec) {
  if (spec.kind != NormKind::kRms)
    return {module_of(spec.name), "",
            std::string("LayerNorm with") +
                (spec.kind == NormKind::kLayer ? " a bias over " : "out a bias over ") +
                std::to_string(spec.width)};
  return norm_module(module_of(spec.name), spec.width, spec.settings);
}

std::string text_of(RopePairs pairs) {
  switch (pairs) {
    case RopePairs::kHalfSplit:
      return "half-split pairs";
    case RopePairs::kInterleaved:
      return "interleaved pairs";
    case RopePairs::kInterleavedToHalves:
      return "interleaved pairs, written as halves";
  }
  return {};
}

std::string text_of(const RopeScaling& scaling) {
  constexpr std::array kNames = {"",           ", linear scaling", ", llama3 scaling",      ", yarn",
                                 ", longrope", ", NTK alpha",      ", a share of all pairs"};
  static_assert(kNames.size() == std::variant_size_v<RopeScaling>);
  return kNames[scaling.index()];
}

Module rope_module(const RopeSettings& rope, Index head_dim) {
  return {"self_attn rotary embedding", "fused_rope",
          text_of(rope.pairs) + ", " + std::to_string(rope.rotary_dim) + " of a head's " +
              count(head_dim, "elements") + ", theta " + number_text(rope.theta) + text_of(rope.scaling)};
}

Module dense_module(const std::string& name, Index in, Index out, bool bias = false) {
  return {name, "tiled_dense", product(in, out) + (bias ? " + bias" : "")};
}

void add_latent(const AttentionSpec& spec, const LatentSpec& latent, Modules& modules) {
  const Index heads = spec.query_width();
  if (latent.q_rank > 0) {
    modules.push_back(dense_module("self_attn.q_a_proj", spec.hidden_size, latent.q_rank, spec.qkv_bias));
    modules.push_back(norm_module("self_attn.q_a_layernorm", latent.q_rank, latent.norm));
    modules.push_back(dense_module("self_attn.q_b_proj", latent.q_rank, heads));
  } else {
    modules.push_back(dense_module("self_attn.q_proj", spec.hidden_size, heads));
  }
  modules.push_back(dense_module("self_attn.kv_a_proj_with_mqa", spec.hidden_size,
                                 latent.kv_rank + latent.rope_dim, spec.qkv_bias));
  modules.push_back(norm_module("self_attn.kv_a_layernorm", latent.kv_rank, latent.norm));
  modules.push_back(
      dense_module("self_attn.kv_b_proj", latent.kv_rank, spec.heads * (latent.nope_dim + spec.value_dim)));
}

std::string projections(const AttentionSpec& spec, const Family& family) {
  if (family.fused_qkv) return "self_attn.qkv_proj";
  return std::string("self_attn.q_proj") + (spec.keys_of ? "" : ", k_proj") +
         (spec.keys_of || spec.keys_are_values ? "" : ", v_proj");
}

void add_heads(const AttentionSpec& spec, const Family& family, Modules& modules) {
  modules.push_back(
      dense_module(projections(spec, family), spec.hidden_size, spec.projected_width(), spec.qkv_bias));
  if (spec.value_norm && !spec.keys_of)
    modules.push_back(norm_module("self_attn values", spec.value_dim, {.eps = spec.norm.eps}));
  if (spec.qk_norm == QkNorm::kNone) return;
  const AttentionNames& names = family.attention;
  Module norm = norm_module("self_attn." + names.query_norm + (spec.keys_of ? "" : ", " + names.key_norm),
                            spec.head_dim, spec.norm);
  if (spec.qk_norm == QkNorm::kWholeWidth)
    norm.what = "RMSNorm over " + std::to_string(spec.query_width()) + " and " +
                std::to_string(spec.key_width()) + ", all heads at once";
  modules.push_back(norm);
}

void add_gate(const AttentionSpec& spec, const OutputGate& gate, const std::string& name, Modules& modules) {
  if (!gate.with_query)
    modules.push_back(dense_module("self_attn." + name, spec.hidden_size, spec.gate_width()));
  modules.push_back({"self_attn output gate", "",
                     std::string("context * ") +
                         (gate.function == GateFunction::kSigmoid ? "sigmoid" : "softplus") + "(gate)" +
                         (gate.per_head ? ", a number a head" : "")});
}

void add_mixer(const AttentionSpec& spec, const ModelConfig& config, Modules& modules) {
  if (spec.latent)
    add_latent(spec, *spec.latent, modules);
  else
    add_heads(spec, config.family(), modules);
  if (spec.rope != kNoRope)
    modules.push_back(rope_module(config.ropes()[static_cast<std::size_t>(spec.rope)], spec.head_dim));
  modules.push_back(
      {"self_attn scores", "",
       count(spec.heads, "heads") + ", " + count(spec.kv_heads, "of keys and values") +
           (spec.window > 0 ? ", a window of " + count(spec.window, "tokens") : "") +
           (spec.chunk > 0 ? ", chunks of " + count(spec.chunk, "tokens") : "") +
           (spec.sinks ? ", a sink a head" : "") +
           (spec.keys_of ? ", keys and values of layer " + std::to_string(*spec.keys_of) : "") +
           (spec.keys_are_values ? ", values are the keys before their norm" : "") +
           (spec.value_scale != 1 ? ", values times " + number_text(static_cast<double>(spec.value_scale))
                                  : "") +
           ": products on tiles of its own, no kernel has another"});
  if (spec.gate) add_gate(spec, *spec.gate, config.family().attention.gate, modules);
  modules.push_back(dense_module("self_attn." + config.family().attention.output, spec.output_width(),
                                 spec.hidden_size, spec.output_bias));
}

void add_mixer(const ShortConvSpec& spec, const ModelConfig&, Modules& modules) {
  const Index d = spec.hidden_size;
  modules.push_back(dense_module("conv.in_proj", d, 3 * d, spec.bias));
  modules.push_back({"conv.conv", "",
                     "causal, over " + count(spec.taps, "tokens of ") + count(d, "channels") +
                         ", gates before and behind it: no kernel has another"});
  modules.push_back(dense_module("conv.out_proj", d, d, spec.bias));
}

void add_mixer(const DeltaNetSpec& spec, const ModelConfig& config, Modules& modules) {
  const bool by_part = config.family().delta_net == DeltaNetLayout::kByPart;
  modules.push_back(
      dense_module(by_part ? "linear_attn.in_proj_qkv, z, b, a" : "linear_attn.in_proj_qkvz, in_proj_ba",
                   spec.hidden_size, spec.projected_width()));
  modules.push_back({"linear_attn.conv1d", "",
                     "causal, over " + count(spec.taps, "tokens of ") +
                         count(spec.mixed_width(), "channels") + ", silu: no kernel has another"});
  modules.push_back({"linear_attn gated delta rule", "",
                     count(spec.value_heads, "heads of values") + ", " + count(spec.key_heads, "of keys") +
                         ", states of " + std::to_string(spec.key_dim) + " x " +
                         std::to_string(spec.value_dim) +
                         ": products on tiles of its own, no kernel has another"});
  Module norm = norm_module("linear_attn.norm", spec.value_dim, spec.norm);
  norm.what += " times silu(z)";
  modules.push_back(norm);
  modules.push_back(dense_module("linear_attn.out_proj", spec.value_width(), spec.hidden_size));
}

Module activation_module(const std::string& name, const ModelConfig& config, const std::string& more = {}) {
  return {name, "fused_swiglu", config.hidden_act + "(gate) * up" + more};
}

/// Before the names of experts' parts; empty where they are called without a block.
std::string block_of(const ModelConfig& config) {
  return config.names.block.empty() ? std::string() : config.names.block + ".";
}

/// Of the router's product, as files call it.
std::string router_name(const ModelConfig& config) {
  const std::string& weight = config.family().moe->router_names.weight;
  return block_of(config) + weight.substr(0, weight.rfind('.'));
}

std::string score_text(const RouterSettings& router) {
  if (router.weigh_by == WeighBy::kSoftmaxOfChosen) return ", softmax over the chosen";
  const bool sigmoid = router.score == RouterScore::kSigmoid || router.weigh_by == WeighBy::kSigmoidOfLogit;
  return sigmoid ? ", sigmoid" : ", softmax";
}

/// Of logits' cap; empty where there is none.
std::string cap_text(double cap) {
  return cap > 0 ? ", at most " + number_text(cap) + " by tanh" : "";
}

void add_mlp(const MlpSpec& spec, const ModelConfig& config, Modules& modules) {
  const Family& family = config.family();
  const bool as_experts = family.moe && !config.names.block.empty();
  const ExpertNames names = as_experts ? family.moe->experts : ExpertNames();
  const std::string block = as_experts ? block_of(config) : "mlp.";
  modules.push_back(
      dense_module(block + (family.fused_gate_up ? "gate_up_proj" : names.gate + ", " + names.up),
                   spec.hidden_size, 2 * spec.width, spec.bias));
  modules.push_back(activation_module("mlp activation", config));
  Module down = dense_module(block + names.down, spec.width, spec.hidden_size, spec.bias);
  if (config.has_experts()) down.what += "; a dense layer, where fused_moe has nothing to do";
  modules.push_back(down);
}

void add_shared_expert(const MoeSpec& spec, const ModelConfig& config, const std::string& block,
                       Modules& modules) {
  const std::string name = block + config.family().moe->shared->name;
  if (spec.shared->gated)
    modules.push_back(
        {name + "_gate", "", product(spec.hidden_size, 1) + ", sigmoid: too few columns for tiles"});
  modules.push_back(dense_module(name + ".gate_proj, up_proj", spec.hidden_size, 2 * spec.shared->width));
  modules.push_back(activation_module(name + " activation", config));
  modules.push_back(dense_module(name + ".down_proj", spec.shared->width, spec.hidden_size));
}

void add_moe(const MoeSpec& spec, const ModelConfig& config, Modules& modules) {
  const std::string block = block_of(config);
  const RouterSettings& router = spec.router;
  const std::string name = router_name(config);
  if (spec.router_norm) {
    modules.push_back(norm_module(spec.router_norm->norm));
    modules.back().name = name + " input";
  }
  modules.push_back({name, "",
                     product(spec.hidden_size, router.num_experts) + cap_text(router.logit_cap) +
                         score_text(router) + ", top-" + std::to_string(router.top_k) +
                         (spec.expert_scale ? ", a scale an expert" : "") + ": too few columns for tiles"});
  if (spec.shared) add_shared_expert(spec, config, block, modules);
  modules.push_back({block + "experts", "fused_moe",
                     std::to_string(router.num_experts) + " experts, each " +
                         product(spec.hidden_size, 2 * spec.width) + " and " +
                         product(spec.width, spec.hidden_size)});
  modules.push_back(activation_module(block + "experts activation", config, " * routing weight"));
}

Modules mixer_half(const LayerSpec& spec, const ModelConfig& config) {
  Modules modules;
  if (spec.mixer_norm) modules.push_back(norm_module(*spec.mixer_norm));
  std::visit([&](const auto& mixer) { add_mixer(mixer, config, modules); }, spec.mixer);
  if (spec.mixer_output_norm) modules.push_back(norm_module(*spec.mixer_output_norm));
  return modules;
}

void add_per_layer_input(const PerLayerInputSpec& spec, const ModelConfig& config, Modules& modules) {
  modules.push_back(dense_module("per_layer_input_gate", spec.hidden_size, spec.width));
  modules.push_back(activation_module("per_layer_input activation", config, ", the token's part"));
  modules.push_back(dense_module("per_layer_projection", spec.width, spec.hidden_size));
  modules.push_back(norm_module(spec.norm));
}

Modules feed_forward_half(const LayerSpec& spec, const ModelConfig& config) {
  Modules modules;
  const auto add_norm = [&](const std::optional<NormSpec>& norm) {
    if (norm) modules.push_back(norm_module(*norm));
  };
  add_norm(spec.feed_forward_norm);
  if (spec.mlp) add_mlp(*spec.mlp, config, modules);
  if (spec.side_by_side) add_norm(spec.side_by_side->mlp_output);
  if (spec.side_by_side) add_norm(spec.side_by_side->experts_input);
  if (spec.moe) add_moe(*spec.moe, config, modules);
  if (spec.side_by_side) add_norm(spec.side_by_side->experts_output);
  add_norm(spec.feed_forward_output_norm);
  if (spec.per_layer_input) add_per_layer_input(*spec.per_layer_input, config, modules);
  return modules;
}

/// Of the model's own, before its layers.
Modules embeddings(const ModelConfig& config) {
  Modules modules = {
      {"embed_tokens", "",
       count(config.vocab_size, "rows of ") + std::to_string(config.hidden_size) + ": a look-up"}};
  const std::optional<PerLayerEmbeddingSpec> of_layers = config.per_layer_embedding();
  if (!of_layers) return modules;
  const Index width = of_layers->layers * of_layers->width;
  modules.push_back({"embed_tokens_per_layer", "",
                     count(of_layers->vocab_size, "rows of ") + std::to_string(width) + ": a look-up"});
  modules.push_back(dense_module("per_layer_model_projection", config.hidden_size, width));
  modules.push_back(norm_module(of_layers->norm));
  return modules;
}

/// Layers in rising order, and the modules that all of them have alike.
struct LayerGroup {
  std::vector<Index> layers;
  Modules modules;
};

void add_layer(Index layer, Modules modules, std::vector<LayerGroup>& groups) {
  auto group = std::ranges::find(groups, modules, &LayerGroup::modules);
  if (group == groups.end()) group = groups.insert(group, {{}, std::move(modules)});
  group->layers.push_back(layer);
}

/// By halves: where a window ends and where experts begin are two things.
std::vector<LayerGroup> groups_of(const ModelConfig& config) {
  std::vector<LayerGroup> mixers;
  std::vector<LayerGroup> feed_forward;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerSpec spec = config.layer(layer);
    add_layer(layer, mixer_half(spec, config), mixers);
    add_layer(layer, feed_forward_half(spec, config), feed_forward);
  }
  mixers.insert(mixers.end(), feed_forward.begin(), feed_forward.end());
  return mixers;
}

/// {0, 1, 2, 5} -> "layers 0-2, 5".
std::string layers_text(const std::vector<Index>& layers) {
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += (i == 0 ? "" : ", ") + std::to_string(layers[i]);
    if (last > i) text += "-" + std::to_string(layers[last]);
    i = last;
  }
  return text;
}

ModuleRow row_of(const std::string& layers, const Module& module, const std::vector<KernelReport>& reports) {
  if (module.kernel.empty()) return {layers, module.name, "native", module.what};
  const auto report = std::ranges::find(reports, module.kernel, &KernelReport::id);
  if (report == reports.end()) return {layers, module.name, "native", module.what};
  if (report->applied) return {layers, module.name, module.kernel, module.what};
  const bool is_product = module.kernel == "tiled_dense" || module.kernel == "fused_moe";
  return {layers, module.name, is_product ? "native" : "reference",
          module.what + "; not " + module.kernel + ": " + report->reason};
}

}  // namespace

std::vector<ModuleRow> kernel_modules(const ModelConfig& config, const std::vector<KernelReport>& reports) {
  std::vector<ModuleRow> rows;
  for (const Module& module : embeddings(config)) rows.push_back(row_of("", module, reports));
  for (const LayerGroup& group : groups_of(config))
    for (const Module& module : group.modules)
      rows.push_back(row_of(layers_text(group.layers), module, reports));
  rows.push_back(row_of("", norm_module(config.final_norm()), reports));
  Module head = dense_module("lm_head", config.hidden_size, config.vocab_size);
  if (config.head_bias) head.what += " + bias";
  head.what += cap_text(config.logit_cap);
  if (config.tie_word_embeddings) head.what += ", the embeddings' weight";
  rows.push_back(row_of("", head, reports));
  return rows;
}

}  // namespace moeloom
