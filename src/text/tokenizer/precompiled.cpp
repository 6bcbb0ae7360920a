#include "tokenizer/precompiled.hpp"

#include <algorithm>
#include <cstring>

namespace moeloom::tokenizing {
namespace {

std::optional<std::string> decoded_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char digit : text) {
    const std::size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFF);
  }
  return bytes;
}

// A unit of a darts-clone array.
constexpr bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
constexpr std::uint32_t label(std::uint32_t unit) {
  return unit & 0x800000FF;
}
constexpr std::uint32_t value(std::uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
constexpr std::uint32_t offset(std::uint32_t unit) {
  return (unit >> 10) << ((unit & 512) >> 6);
}

/// As the reference counts: what is dropped belongs to the character before, if there is one.
void add_replacement(std::string_view old, std::string_view fresh, std::vector<Change>& changes) {
  const std::size_t before = changes.size();
  for (std::size_t i = 0; i < fresh.size();) changes.push_back({next_code_point(fresh, i), 0});
  const auto old_count = static_cast<std::ptrdiff_t>(count_code_points(old));
  const auto fresh_count = std::ssize(changes) - static_cast<std::ptrdiff_t>(before);
  for (auto i = old_count; i < fresh_count; ++i) changes[before + static_cast<std::size_t>(i)].change = 1;
  if (fresh_count < old_count && !changes.empty())
    changes.back().change += static_cast<int>(fresh_count - old_count);
}

std::size_t end_of_cluster(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  int state = 0;
  char32_t before = next_code_point(text, end);
  for (std::size_t next = end; next < text.size(); end = next) {
    const char32_t after = next_code_point(text, next);
    if (ends_cluster(before, after, state)) break;
    before = after;
  }
  return end;
}

}  // namespace

PrecompiledMap::PrecompiledMap(const Field& field) {
  const auto bytes = decoded_base64(field.text());
  if (!bytes) field.refuse("base64");
  std::uint32_t array_bytes = 0;
  if (bytes->empty()) return;
  if (bytes->size() < sizeof array_bytes) field.refuse("the size of a double array");
  std::memcpy(&array_bytes, bytes->data(), sizeof array_bytes);
  const std::size_t begin = sizeof array_bytes;
  if (array_bytes > bytes->size() - begin || array_bytes % sizeof(std::uint32_t) != 0)
    field.refuse("a double array of " + std::to_string(array_bytes) + " bytes");
  units_.resize(array_bytes / sizeof(std::uint32_t));
  if (array_bytes > 0) std::memcpy(units_.data(), bytes->data() + begin, array_bytes);
  const std::string_view rest = std::string_view(*bytes).substr(begin + array_bytes);
  replacements_ = valid_utf8(rest);
  if (replacements_ != rest) field.refuse("replacements in UTF-8");
}

std::optional<std::string_view> PrecompiledMap::replacement(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::uint32_t place = offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte == 0) return std::nullopt;
    place ^= byte;
    if (place >= units_.size() || label(units_[place]) != byte) return std::nullopt;
    const bool ends_here = has_leaf(units_[place]);
    place ^= offset(units_[place]);
    if (!ends_here) continue;
    if (place >= units_.size() || value(units_[place]) > replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(value(units_[place]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void PrecompiledMap::add_each(std::string_view text, std::vector<Change>& changes) const {
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    const char32_t code_point = next_code_point(text, end);
    const std::string_view character = text.substr(at, end - at);
    if (const auto fresh = replacement(character))
      add_replacement(character, *fresh, changes);
    else
      changes.push_back({code_point, 0});
  }
}

AlignedText PrecompiledMap::apply(const Piece& piece, const Context& context) const {
  constexpr std::size_t kLongestLookedUp = 5;
  const std::string_view text = piece.text;
  std::vector<Change> changes;
  changes.reserve(text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_cluster(text, begin);
    const std::string_view cluster = text.substr(begin, end - begin);
    if (const auto fresh = cluster.size() <= kLongestLookedUp ? replacement(cluster) : std::nullopt)
      add_replacement(cluster, *fresh, changes);
    else
      add_each(cluster, changes);
    begin = end;
  }
  Rewriter rewriter(piece, context);
  rewriter.put(changes, 0);
  return rewriter.take();
}

}  // namespace moeloom::tokenizing
