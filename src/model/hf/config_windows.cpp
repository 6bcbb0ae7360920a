#include "hf/config_windows.hpp"

#include "hf/config_layers.hpp"

namespace moeloom {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr Index kDefaultWindow = 4096;

/// The size of the window, if the keys of this family give one.
std::optional<Index> window_size(ConfigReader& reader, WindowRule rule) {
  switch (rule) {
    case WindowRule::kNone:
      return std::nullopt;
    case WindowRule::kKey:
      return reader.optional_integer("sliding_window", std::nullopt);
    case WindowRule::kAlternate:
      return reader.optional_integer("sliding_window", 128);
    case WindowRule::kPattern:
    case WindowRule::kFromLayer:
      return reader.optional_integer("sliding_window", kDefaultWindow);
    case WindowRule::kFlag:
    case WindowRule::kEvenBelow:
    case WindowRule::kLayerTypes:
      break;
  }
  const std::optional<Index> size = reader.optional_integer("sliding_window", kDefaultWindow);
  return reader.boolean_or("use_sliding_window", false) ? size : std::nullopt;
}

/// Where windows are if no layer_types say so.
std::vector<std::string> default_types(ConfigReader& reader, WindowRule rule, bool windowed, Index layers) {
  Index first = 0, end = layers;
  if (rule == WindowRule::kEvenBelow) end = reader.integer_or("max_window_layers", 28);
  if (rule == WindowRule::kLayerTypes) first = reader.integer_or("max_window_layers", 28);
  if (rule == WindowRule::kFromLayer) first = reader.integer_or("max_window_layers", 62);
  const Index pattern = rule == WindowRule::kPattern ? reader.count_or("sliding_window_pattern", 6) : 0;
  const bool alternates = rule == WindowRule::kAlternate || rule == WindowRule::kEvenBelow;
  std::vector<std::string> types;
  for (Index layer = 0; layer < layers; ++layer) {
    const bool in_pattern =
        (pattern < 1 || (layer + 1) % pattern != 0) && (!alternates || (layer + 1) % 2 != 0);
    const bool any = windowed || rule == WindowRule::kAlternate;
    types.push_back(any && layer >= first && layer < end && in_pattern ? kSliding : kFull);
  }
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
  const std::optional<Index> size = window_size(reader, rule);
  if (size && *size < 1) reader.refuse("sliding_window = " + std::to_string(*size) + " must be at least 1");
  std::vector<std::string> types = default_types(reader, rule, size.has_value(), layers);
  if (reader.has("layer_types")) {
    const std::vector<std::string> stated = reader.texts("layer_types");
    if (!are_layer_types(reader, stated, layers, kSliding)) return {};
    const bool decides = rule != WindowRule::kNone && rule != WindowRule::kKey && rule != WindowRule::kFlag;
    if (decides)
      types = stated;
    else
      check_agreement(reader, stated, types);
  }
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
