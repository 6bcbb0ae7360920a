#include "hf/config/config_layers.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kMostListed = Index{1} << 16;
constexpr const char* kWholeAttention = "full_attention";

Index layers_of(const ModelConfig& config) {
  return std::clamp<Index>(config.num_hidden_layers, 0, kMostListed);
}

/// Ernie 4.5: layer l where (l + 1) is a multiple of the interval, from start to end, -1: the last.
std::vector<Index> by_interval(ConfigReader& reader, Index layers) {
  const Index begin = reader.integer_or("moe_layer_start_index", 1);
  const Index last = reader.integer_or("moe_layer_end_index", -1);
  const Index interval = reader.count_or("moe_layer_interval", 1);
  if (last < -1) reader.refuse("moe_layer_end_index = " + std::to_string(last) + " must be -1 or a layer");
  std::vector<Index> list;
  const Index end = last < 0 ? layers : std::min(layers - 1, last) + 1;
  for (Index layer = std::max<Index>(begin, 0); layer < end; ++layer)
    if ((layer + 1) % interval == 0) list.push_back(layer);
  return list;
}

/// Llama 4: moe_layers, or each interleave_moe_layer_step-th layer.
std::vector<Index> by_list(ConfigReader& reader, Index layers) {
  const Index step = reader.count_or("interleave_moe_layer_step", 1);
  std::vector<Index> list;
  if (reader.has("moe_layers")) {
    list = reader.integers("moe_layers");
    std::ranges::sort(list);
    list.erase(std::ranges::unique(list).begin(), list.end());
    for (const Index layer : list)
      if (layer < 0 || layer >= layers)
        reader.refuse("moe_layers names layer " + std::to_string(layer) + " of " + std::to_string(layers));
    return list;
  }
  for (Index layer = step - 1; layer < layers; layer += step) list.push_back(layer);
  return list;
}

bool has_one_a_layer(ConfigReader& reader, const std::string& key, Index entries, Index layers) {
  if (entries != layers)
    reader.refuse(key + " has " + std::to_string(entries) +
                  " entries, but num_hidden_layers = " + std::to_string(layers));
  return entries == layers;
}

/// mlp_layer_types, or a list of 0 and 1, or `dense` layers and then experts.
std::vector<Index> by_types(ConfigReader& reader, const std::string& list_key, Index layers, Index dense) {
  std::vector<Index> list;
  const auto add_if = [&](bool sparse, Index layer) {
    if (sparse) list.push_back(layer);
  };
  if (reader.has("mlp_layer_types")) {
    const std::vector<std::string> types = reader.texts("mlp_layer_types");
    if (!has_one_a_layer(reader, "mlp_layer_types", std::ssize(types), layers)) return {};
    for (Index layer = 0; layer < layers; ++layer) {
      const std::string& type = types[at(layer)];
      if (type != "sparse" && type != "dense")
        reader.refuse("mlp_layer_types holds \"" + type + "\"; known: dense, sparse");
      add_if(type == "sparse", layer);
    }
    return list;
  }
  if (!list_key.empty() && reader.has(list_key)) {
    const std::vector<Index> sparse = reader.integers(list_key);
    if (!has_one_a_layer(reader, list_key, std::ssize(sparse), layers)) return {};
    for (Index layer = 0; layer < layers; ++layer) add_if(sparse[at(layer)] != 0, layer);
    return list;
  }
  if (dense < 0) reader.refuse("the number of dense layers must not be negative");
  for (Index layer = std::max<Index>(dense, 0); layer < layers; ++layer) list.push_back(layer);
  return list;
}

/// layer_types, or `fallback(layer)`; each is full_attention or `other`. Empty where they are refused.
template <typename Fallback>
std::vector<std::string> types_of(ConfigReader& reader, Index layers, const std::string& other,
                                  Fallback fallback) {
  std::vector<std::string> types = reader.texts("layer_types");
  if (!reader.has("layer_types"))
    for (Index layer = 0; layer < layers; ++layer) types.push_back(fallback(layer));
  return are_layer_types(reader, types, layers, other) ? types : std::vector<std::string>();
}

/// 1 for a layer with rope, as no_rope_layers says it.
std::vector<Index> layers_with_rope(ConfigReader& reader, Index layers) {
  std::vector<Index> rope = reader.integers("no_rope_layers");
  const Index interval = reader.count_or("no_rope_layer_interval", 4);
  if (rope.empty())  // as HF, which takes an empty list for none
    for (Index layer = 0; layer < layers; ++layer) rope.push_back((layer + 1) % interval == 0 ? 0 : 1);
  if (!has_one_a_layer(reader, "no_rope_layers", std::ssize(rope), layers)) rope.assign(at(layers), 1);
  return rope;
}

/// 1 for a layer of attention, 0 for one of `other`.
std::vector<Index> attention_among(const std::vector<std::string>& types) {
  std::vector<Index> layers;
  for (const std::string& type : types) layers.push_back(type == kWholeAttention ? 1 : 0);
  return layers;
}

void read_short_conv(ConfigReader& reader, Index layers, ModelConfig& config) {
  config.conv_taps = reader.integer_or("conv_L_cache", 3);
  config.conv_bias = reader.boolean_or("conv_bias", false);
  if (reader.texts("layer_types").empty())
    return reader.refuse("key layer_types is missing or empty: it says which layers are \"conv\"");
  config.attention_layers =
      attention_among(types_of(reader, layers, "conv", [](Index) { return std::string(kWholeAttention); }));
}

void read_delta_net(ConfigReader& reader, Index layers, ModelConfig& config) {
  config.conv_taps = reader.integer_or("linear_conv_kernel_dim", 4);
  config.linear_num_key_heads = reader.integer_or("linear_num_key_heads", 16);
  config.linear_num_value_heads = reader.integer_or("linear_num_value_heads", 32);
  config.linear_key_head_dim = reader.integer_or("linear_key_head_dim", 128);
  config.linear_value_head_dim = reader.integer_or("linear_value_head_dim", 128);
  const Index interval = reader.count_or("full_attention_interval", 4);
  const std::string linear = "linear_attention";
  config.attention_layers = attention_among(types_of(reader, layers, linear, [&](Index layer) {
    return (layer + 1) % interval != 0 ? linear : std::string(kWholeAttention);
  }));
}

}  // namespace

bool are_layer_types(ConfigReader& reader, const std::vector<std::string>& types, Index layers,
                     const std::string& other) {
  if (!has_one_a_layer(reader, "layer_types", std::ssize(types), layers)) return false;
  for (const std::string& type : types)
    if (type != kWholeAttention && type != other) {
      reader.refuse("layer_types holds \"" + type + "\"; known: full_attention, " + other);
      return false;
    }
  return true;
}

void read_mixers(ConfigReader& reader, OtherMixer other, Index layers, ModelConfig& config) {
  if (other == OtherMixer::kShortConv) return read_short_conv(reader, layers, config);
  read_delta_net(reader, layers, config);
}

void read_sparse_list(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  const Index layers = layers_of(config);
  const Index dense = rule.first_dense_key.empty() || rule.sparse != SparseRule::kTypes
                          ? rule.first_dense
                          : reader.integer_or(rule.first_dense_key, rule.first_dense);
  config.sparse_layers = rule.sparse == SparseRule::kInterval ? by_interval(reader, layers)
                         : rule.sparse == SparseRule::kTypes
                             ? by_types(reader, rule.sparse_list_key, layers, dense)
                             : by_list(reader, layers);
}

void read_chunks(ConfigReader& reader, Index layers, ModelConfig& config) {
  config.rope_layers = layers_with_rope(reader, layers);
  const Index size = reader.count_or("attention_chunk_size", 8192);
  const std::string chunked = "chunked_attention";
  for (const std::string& type : types_of(reader, layers, chunked, [&](Index layer) {
         return config.rope_layers[at(layer)] != 0 ? chunked : std::string(kWholeAttention);
       }))
    config.chunks.push_back(type == chunked ? size : 0);
  const Index floor_scale = reader.count_or("floor_scale", 8192);
  const double attn_scale = reader.number_or("attn_scale", 0.1);
  if (!reader.truth_or("attn_temperature_tuning", true)) return;  // 4 in dumps of transformers 4.51
  config.floor_scale = floor_scale;
  config.attn_scale = attn_scale;
}

}  // namespace moeloom
