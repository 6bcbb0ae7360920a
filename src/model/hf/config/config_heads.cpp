#include "hf/config/config_heads.hpp"

#include <algorithm>
#include <charconv>
#include <set>

namespace moeloom {
namespace {

constexpr const char* kLayerConfigKey = "per_layer_config";

/// Key and value heads of layers with a window; MiMo-V2's released files have a key for them.
void read_window_heads(ConfigReader& reader, Index layers, ModelConfig& config) {
  const auto same = [&](const char* key, Index value) {
    if (const Index stated = reader.integer_or(key, value); stated != value)
      reader.refuse(std::string(key) + " = " + std::to_string(stated) + " must be " + std::to_string(value) +
                    ", as in full layers");
  };
  same("swa_num_attention_heads", config.num_attention_heads);
  same("swa_head_dim", config.head_dim);
  same("swa_v_head_dim", config.value_dim);
  Index twice = 0;
  if (__builtin_mul_overflow(config.num_key_value_heads, 2, &twice)) twice = 0;  // which is refused later
  const Index of_windows = reader.integer_or("swa_num_key_value_heads", twice);
  for (Index layer = 0; layer < layers; ++layer)
    config.layer_kv_heads.push_back(config.window(layer) > 0 ? of_windows : config.num_key_value_heads);
}

/// The number that a key is, with zeros before it or not; none for another key, which is then unknown.
std::optional<Index> layer_number(const std::string& key) {
  Index number = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// As transformers 5 writes it: an object for each layer that differs, by its number ("05" of 30 layers).
void read_layer_config(ConfigReader& reader, Index layers, ModelConfig& config) {
  reader.skip({"global_head_dim", "num_global_key_value_heads"});
  ConfigReader of_layers = reader.object(kLayerConfigKey);
  std::set<Index> seen;
  for (const std::string& key : of_layers.keys()) {
    const std::optional<Index> layer = layer_number(key);
    if (!layer || *layer < 0 || *layer >= layers || !of_layers.has(key)) continue;
    if (!seen.insert(*layer).second) of_layers.refuse(key + " speaks of a layer again");
    ConfigReader own = of_layers.object(key);
    config.layer_head_dims[at(*layer)] = own.integer_or("head_dim", config.head_dim);
    config.layer_kv_heads[at(*layer)] = own.integer_or("num_key_value_heads", config.num_key_value_heads);
    own.refuse_the_rest();
  }
  of_layers.refuse_the_rest();
}

/// Of full layers, as Gemma4 is released.
void read_global_heads(ConfigReader& reader, Index layers, ModelConfig& config) {
  const Index head_dim = reader.integer_or("global_head_dim", 512);
  const Index stated = reader.optional_integer("num_global_key_value_heads", std::nullopt)
                           .value_or(config.num_key_value_heads);
  const Index kv_heads = config.keys_are_values ? stated : config.num_key_value_heads;
  for (Index layer = 0; layer < layers; ++layer) {
    if (config.window(layer) > 0) continue;
    config.layer_head_dims[at(layer)] = head_dim;
    config.layer_kv_heads[at(layer)] = kv_heads;
  }
}

void read_heads_by_layer(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config) {
  switch (family.heads_by_layer) {
    case HeadsByLayer::kNone:
      return;
    case HeadsByLayer::kList:
      if (reader.has("num_attention_heads_per_layer"))
        config.layer_heads = reader.integers_of_layers("num_attention_heads_per_layer", layers);
      return;
    case HeadsByLayer::kTwiceInWindows:
      return read_window_heads(reader, layers, config);
    case HeadsByLayer::kLayerConfig:
      config.layer_head_dims.assign(at(layers), config.head_dim);
      config.layer_kv_heads.assign(at(layers), config.num_key_value_heads);
      if (reader.has(kLayerConfigKey)) return read_layer_config(reader, layers, config);
      return read_global_heads(reader, layers, config);
  }
}

/// true or "per-head" is a number a head; every other string, and false, one an element.
bool gates_by_head(ConfigReader& reader) {
  if (const auto text = reader.text_if("gating")) return *text == "per-head";
  return reader.truth_or("gating", true);
}

}  // namespace

void read_heads(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config) {
  if (family.lends_keys) {
    config.keys_are_values = reader.boolean_or("attention_k_eq_v", false);
    config.num_kv_shared_layers = reader.integer_or("num_kv_shared_layers", 0);
    config.double_wide_mlp = reader.boolean_or("use_double_wide_mlp", false);
  }
  if (family.value_dim) config.value_dim = reader.count_or("v_head_dim", *family.value_dim);
  read_heads_by_layer(reader, family, layers, config);
  if (family.value_scale)
    config.value_scale = reader.optional_number_or("attention_value_scale", *family.value_scale).value_or(1);
  if (family.gate && family.gate->by_key) config.gate_per_head = gates_by_head(reader);
}

void read_rope_layers(ConfigReader& reader, const Family& family, Index layers, ModelConfig& config) {
  switch (family.rope.layers) {
    case RopeLayers::kAll:
      return;
    case RopeLayers::kThetas:
      if (!reader.has("layer_rope_theta")) return;
      config.layer_rope_theta = reader.numbers("layer_rope_theta");
      if (std::ssize(config.layer_rope_theta) != layers)
        reader.refuse("layer_rope_theta has " + std::to_string(config.layer_rope_theta.size()) +
                      " entries, but num_hidden_layers = " + std::to_string(layers));
      config.layer_rope_theta.resize(at(layers), 0);
      return;
    case RopeLayers::kWindows:
    case RopeLayers::kWindowsAndDense:
      break;
  }
  const bool dense_too = family.rope.layers == RopeLayers::kWindowsAndDense &&
                         reader.count_or("prefix_dense_sliding_window_pattern", 1) == 1;
  for (Index layer = 0; layer < layers; ++layer)
    config.rope_layers.push_back(config.window(layer) > 0 || (dense_too && !config.is_sparse(layer)) ? 1 : 0);
}

}  // namespace moeloom
