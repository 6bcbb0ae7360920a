#include "hf/config/config_windows.hpp"

#include <algorithm>

#include "hf/config/config_layers.hpp"

namespace moeloom {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kDensePattern = "prefix_dense_sliding_window_pattern";

/// The size of the window, if the keys of this family give one.
std::optional<Index> window_size(ConfigReader& reader, const Family& family) {
  const WindowRule rule = family.window;
  if (rule == WindowRule::kNone) return std::nullopt;
  if (rule == WindowRule::kKey) return reader.optional_integer("sliding_window", std::nullopt);
  const std::optional<Index> size = reader.optional_integer("sliding_window", family.windows.size);
  const bool by_flag =
      rule == WindowRule::kFlag || rule == WindowRule::kEvenBelow || rule == WindowRule::kLayerTypes;
  return !by_flag || reader.boolean_or("use_sliding_window", false) ? size : std::nullopt;
}

std::string type_name(bool windowed) {
  return windowed ? kSliding : kFull;
}

/// "LLLG" as types, again and again: a layer with a window is L (EXAONE).
std::vector<std::string> types_by_letters(ConfigReader& reader, const std::string& letters, Index layers) {
  if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
    reader.refuse("sliding_window_pattern = \"" + letters + "\" must be letters L and G");
  std::vector<std::string> types;
  for (Index layer = 0; layer < layers; ++layer)
    types.push_back(type_name(!letters.empty() && letters[at(layer) % letters.size()] == 'L'));
  return types;
}

/// kPattern: layer l is full where l + 1 + shift is a multiple of the pattern. Cohere2's dense layers have a
/// pattern of their own, behind which the other begins anew.
std::vector<std::string> types_by_pattern(ConfigReader& reader, const Family& family, Index layers) {
  const WindowFallbacks& rule = family.windows;
  if (const auto letters = reader.text_if(rule.pattern_key))
    return types_by_letters(reader, *letters, layers);
  const Index pattern =
      rule.pattern_key.empty() ? rule.pattern : reader.count_or(rule.pattern_key, rule.pattern);
  const Index dense =
      rule.after_dense ? std::max<Index>(reader.integer_or("first_k_dense_replace", 0), 0) : 0;
  const Index of_dense = rule.after_dense ? reader.count_or(kDensePattern, 1) : 1;
  std::vector<std::string> types;
  for (Index layer = 0; layer < layers; ++layer) {
    const bool full =
        layer < dense ? (layer + 1) % of_dense == 0 : (layer - dense + 1 + rule.shift) % pattern == 0;
    types.push_back(type_name(!full && !(rule.first_full && layer == 0)));
  }
  return types;
}

/// Where windows are if no layer_types say so.
std::vector<std::string> default_types(ConfigReader& reader, const Family& family, bool windowed,
                                       Index layers) {
  const WindowRule rule = family.window;
  if (rule == WindowRule::kPattern && windowed) return types_by_pattern(reader, family, layers);
  Index first = 0, end = rule == WindowRule::kTypes ? 0 : layers;
  if (rule == WindowRule::kEvenBelow) end = reader.integer_or("max_window_layers", 28);
  if (rule == WindowRule::kLayerTypes) first = reader.integer_or("max_window_layers", 28);
  if (rule == WindowRule::kFromLayer) first = reader.integer_or("max_window_layers", 62);
  const bool alternates = rule == WindowRule::kAlternate || rule == WindowRule::kEvenBelow;
  const bool any = (windowed && rule != WindowRule::kPattern) || rule == WindowRule::kAlternate;
  std::vector<std::string> types;
  for (Index layer = 0; layer < layers; ++layer)
    types.push_back(type_name(any && layer >= first && layer < end && (!alternates || (layer + 1) % 2 != 0)));
  return types;
}

/// layer_types, or what released files call so: 1 for a layer with a window.
std::optional<std::vector<std::string>> stated_types(ConfigReader& reader, const std::string& list_key) {
  if (reader.has("layer_types")) return reader.texts("layer_types");
  if (list_key.empty() || !reader.has(list_key)) return std::nullopt;
  std::vector<std::string> types;
  for (const Index windowed : reader.integers(list_key)) types.push_back(type_name(windowed != 0));
  return types;
}

/// Families whose layers HF does not choose by layer_types may have them, if they say the same.
void check_agreement(ConfigReader& reader, const std::vector<std::string>& stated,
                     const std::vector<std::string>& implied) {
  for (std::size_t layer = 0; layer < stated.size(); ++layer)
    if (stated[layer] != implied[layer])
      return reader.refuse("layer_types says \"" + stated[layer] + "\" of layer " + std::to_string(layer) +
                           ", where the other keys of this family make it " + implied[layer]);
}

}  // namespace

std::vector<Index> read_windows(ConfigReader& reader, const Family& family, Index layers) {
  const WindowRule rule = family.window;
  const std::optional<Index> size = window_size(reader, family);
  if (size && *size < 1) reader.refuse("sliding_window = " + std::to_string(*size) + " must be at least 1");
  const bool decides = rule != WindowRule::kNone && rule != WindowRule::kKey && rule != WindowRule::kFlag;
  std::vector<std::string> types;
  if (const auto stated = stated_types(reader, family.windows.list_key)) {
    if (!are_layer_types(reader, *stated, layers, kSliding)) return {};
    if (rule != WindowRule::kNone) reader.skip({family.windows.pattern_key, "max_window_layers"});
    if (family.windows.after_dense) reader.skip({kDensePattern});
    if (!decides) check_agreement(reader, *stated, default_types(reader, family, size.has_value(), layers));
    types = *stated;
  } else {
    types = default_types(reader, family, size.has_value(), layers);
  }
  if (family.windows.last_full && !types.empty()) types.back() = kFull;
  std::vector<Index> windows;
  bool any = false;
  for (const std::string& type : types) {
    windows.push_back(type == kSliding ? size.value_or(0) : 0);
    any = any || type == kSliding;
  }
  if (any && !size)
    reader.refuse("layer_types holds \"sliding_attention\", but no sliding_window is in force");
  return any ? windows : std::vector<Index>();
}

}  // namespace moeloom
