#include "commands/inspect_architecture.hpp"

#include "base/text.hpp"
#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>

namespace moeloom {
namespace {

void line(const char* what, const std::string& value) {
  if (!value.empty()) std::printf("%-22s %s\n", what, value.c_str());
}

void line(const char* what, Index value) {
  line(what, std::to_string(value));
}

using Layers = std::vector<LayerSpec>;

Layers layers_of(const ModelConfig& c) {
  Layers layers;
  for (Index layer = 0; layer < c.num_hidden_layers; ++layer) layers.push_back(c.layer(layer));
  return layers;
}

std::vector<AttentionSpec> attention_of(const Layers& layers) {
  std::vector<AttentionSpec> all;
  for (const LayerSpec& layer : layers)
    if (const AttentionSpec* attention = layer.attention()) all.push_back(*attention);
  return all;
}

/// "4" where all are alike, else "2, 4 or 6".
template <typename Specs, typename Number>
std::string numbers(const Specs& specs, Number number) {
  std::set<Index> values;
  for (const auto& spec : specs) values.insert(std::invoke(number, spec));
  std::string text;
  for (auto value = values.begin(); value != values.end(); ++value)
    text += (value == values.begin()            ? ""
             : std::next(value) == values.end() ? " or "
                                                : ", ") +
            std::to_string(*value);
  return text;
}

/// "in 2 of 4 layers"; empty if in none.
template <typename Specs, typename Condition>
std::string places(const ModelConfig& c, const Specs& specs, Condition holds) {
  const auto count = std::ranges::count_if(specs, holds);
  if (count == 0) return {};
  return "in " + std::to_string(count) + " of " + std::to_string(c.num_hidden_layers) + " layers";
}

std::string cap_text(double cap) {
  return cap > 0 ? ", logits at most " + rounded_text(cap) + " by tanh" : "";
}

void print_other_mixer(const ModelConfig& c) {
  const Index others = std::ranges::count(c.attention_layers, 0);
  if (others == 0) return;
  const std::string layers =
      " in " + std::to_string(others) + " of " + std::to_string(c.num_hidden_layers) + " layers";
  if (c.family().other_mixer == OtherMixer::kShortConv)
    return line("short convolution", "over " + std::to_string(c.conv_taps) + " tokens," + layers);
  line("gated delta net", std::to_string(c.linear_num_value_heads) + " heads of " +
                              std::to_string(c.linear_value_head_dim) + ", " +
                              std::to_string(c.linear_num_key_heads) + " of " +
                              std::to_string(c.linear_key_head_dim) + " for keys," + layers);
}

std::string values_text(const std::vector<AttentionSpec>& attention) {
  const auto apart = [](const AttentionSpec& spec) {
    return !spec.latent && spec.value_dim != spec.head_dim;
  };
  const float scale = attention.front().value_scale;
  return (std::ranges::any_of(attention, apart)
              ? ", values of " + numbers(attention, &AttentionSpec::value_dim)
              : "") +
         (scale != 1 ? ", values times " + rounded_text(static_cast<double>(scale)) : "");
}

std::string gate_text(const std::optional<OutputGate>& gate) {
  if (!gate) return {};
  return std::string(gate->function == GateFunction::kSigmoid ? "sigmoid" : "softplus") + ", a number " +
         (gate->per_head ? "a head" : "an element");
}

void print_heads(const ModelConfig& c, const std::vector<AttentionSpec>& attention) {
  const std::string heads = numbers(attention, &AttentionSpec::heads),
                    sizes = numbers(attention, &AttentionSpec::head_dim),
                    key_heads = numbers(attention, &AttentionSpec::kv_heads);
  const bool differ = (heads + sizes + key_heads).find(" or ") != std::string::npos;
  line("heads", heads + " of " + sizes + ", " + key_heads + " for keys and values" +
                    (differ ? ", by layer" : "") + values_text(attention));
  if (c.family().latent_attention)
    line("latents", (c.q_lora_rank > 0 ? std::to_string(c.q_lora_rank) + " for queries, " : "") +
                        std::to_string(c.kv_lora_rank) + " for keys and values of " +
                        std::to_string(c.v_head_dim));
}

void print_attention(const ModelConfig& c, const Layers& layers) {
  print_other_mixer(c);
  const std::vector<AttentionSpec> attention = attention_of(layers);
  if (attention.empty()) return;
  print_heads(c, attention);
  const std::string windowed = places(c, attention, [](const auto& spec) { return spec.window > 0; });
  if (!windowed.empty()) line("windows", std::to_string(std::ranges::max(c.windows)) + " tokens " + windowed);
  line("sinks", places(c, attention, [](const auto& spec) { return spec.sinks; }));
  line("output gate", gate_text(attention.front().gate));
  line("no rotary embedding", places(c, attention, [](const auto& spec) { return spec.rope == kNoRope; }));
  line("keys are values", places(c, attention, [](const auto& spec) { return spec.keys_are_values; }));
  line("lent keys and values",
       places(c, attention, [](const auto& spec) { return spec.keys_of.has_value(); }));
}

std::string layout_text(ExpertLayout layout) {
  switch (layout) {
    case ExpertLayout::kList:
      return "a tensor each";
    case ExpertLayout::kStacked:
      return "stacked, [E, 2F, D]";
    case ExpertLayout::kStackedTransposed:
      return "stacked, [E, D, 2F]";
    case ExpertLayout::kStackedInterleaved:
      return "stacked, [E, D, 2F], gate and up in turn";
  }
  return {};
}

std::string score_text(const RouterSettings& router) {
  if (router.weigh_by == WeighBy::kSoftmaxOfChosen) return "softmax over the chosen";
  if (router.weigh_by == WeighBy::kSigmoidOfLogit || router.score == RouterScore::kSigmoid) return "sigmoid";
  return "softmax";
}

void print_experts(const ModelConfig& c, const Layers& layers) {
  const MoeRule& rule = *c.family().moe;
  std::vector<MoeSpec> sparse;
  for (const LayerSpec& layer : layers)
    if (layer.moe) sparse.push_back(*layer.moe);
  const std::string top_k = numbers(sparse, [](const MoeSpec& moe) { return moe.router.top_k; });
  const bool differ = top_k.find(" or ") != std::string::npos;
  line("experts", std::to_string(c.num_experts) + " of size " + std::to_string(c.moe_intermediate_size) +
                      ", top-" + top_k + (differ ? ", by layer" : ""));
  const RouterSettings& router = sparse.front().router;
  line("router",
       score_text(router) + (router.divide.by != DivideBy::kNothing ? ", weights divided by their sum" : "") +
           (c.n_group > 1
                ? ", from " + std::to_string(c.topk_group) + " of " + std::to_string(c.n_group) + " groups"
                : "") +
           cap_text(c.router_logit_cap) + (sparse.front().router_norm ? ", reads the residual stream" : "") +
           (sparse.front().expert_scale ? ", a scale an expert" : ""));
  if (c.shared_expert_intermediate_size > 0)
    line("shared expert", "of size " + std::to_string(c.shared_expert_intermediate_size) +
                              (rule.shared && rule.shared->gated ? ", gated" : "") +
                              (c.shared_average ? ", averaged with the others' sum" : ""));
  line("experts' tensors", layout_text(c.names.experts));
}

std::string form_text(const LayerSpec& layer) {
  if (layer.parallel) return "attention and MLP or experts read the same norm, side by side";
  return layer.side_by_side ? "an MLP and experts side by side" : "";
}

void print_layers(const ModelConfig& c, const Layers& layers) {
  const Index sparse = std::ranges::count_if(layers, [](const auto& layer) { return layer.moe.has_value(); });
  line("layers", std::to_string(c.num_hidden_layers) + " (" + std::to_string(sparse) + " sparse, " +
                     std::to_string(c.num_hidden_layers - sparse) + " dense)");
  line("hidden_size", c.hidden_size);
  line("form of a layer", form_text(layers.front()));
  line("scalar of a layer", layers.front().scalar.empty() ? "" : "of its output, frozen");
  print_attention(c, layers);
  std::vector<MlpSpec> dense;
  for (const LayerSpec& layer : layers)
    if (layer.mlp) dense.push_back(*layer.mlp);
  line("intermediate_size", numbers(dense, &MlpSpec::width));
  if (sparse > 0) print_experts(c, layers);
  if (const auto embedding = c.per_layer_embedding())
    line("per-layer embeddings", std::to_string(embedding->width) + " numbers a layer, of " +
                                     std::to_string(embedding->vocab_size) + " tokens");
}

}  // namespace

void print_architecture(const std::filesystem::path& folder, const ModelConfig& c) {
  line("folder", folder.string());
  line("model_type", c.model_type + " (" + c.family().architecture + ")");
  print_layers(c, layers_of(c));
  line("activation", c.hidden_act);
  line("vocab_size", c.vocab_size);
  line("head", (c.tie_word_embeddings ? "tied to the embeddings" : "its own") + cap_text(c.logit_cap));
  line("parameters", c.total_parameters());
  line("  active a token", c.active_parameters());
  if (c.adapter)
    line("adapter", "r=" + std::to_string(c.adapter->rank) + ", scale " + rounded_text(c.adapter->scale()) +
                        (c.adapter->dropout > 0 ? ", dropout " + rounded_text(c.adapter->dropout) : "") +
                        ", " + std::to_string(c.adapter->modules.size()) + " modules of " +
                        c.adapter->base.string());
  for (const std::string& remark : c.remarks) line("read so", remark);
  if (c.adapter)
    for (const std::string& remark : c.adapter->remarks) line("adapter", remark);
}

}  // namespace moeloom
