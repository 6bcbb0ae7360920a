#include "fields/config_file.hpp"

#include "base/text.hpp"

#include <optional>
#include <sstream>
#include <string_view>

namespace moeloom {
namespace {

constexpr std::string_view kEscaped = "\"\\\n\r\t";
constexpr std::string_view kEscapes = "\"\\nrt";

std::string without_comment(const std::string& text) {
  for (std::size_t at = text.find('#'); at != std::string::npos; at = text.find('#', at + 1))
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t') return trimmed(text.substr(0, at));
  return trimmed(text);
}

/// What stands behind =; none if quotes are not closed, or more than a comment follows them.
std::optional<std::string> value_behind(const std::string& text) {
  if (!text.starts_with('"')) return without_comment(text);
  std::string value;
  std::size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    const std::size_t escape = kEscapes.find(text[++i]);  // behind the text stands '\0', which is none
    if (escape == std::string_view::npos) return std::nullopt;
    value += kEscaped[escape];
  }
  const bool is_whole = i < text.size() && without_comment(text.substr(i + 1)).empty();
  return is_whole ? std::optional(value) : std::nullopt;
}

}  // namespace

Layer parse_config(const std::string& text, const std::string& origin, Violations& violations) {
  Layer layer;
  std::istringstream stream(text);
  std::string line;
  for (Index number = 1; std::getline(stream, line); ++number) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const std::string where = origin + ":" + std::to_string(number) + ": ";
    const std::size_t equals = line.find('=');
    const std::string key = trimmed(line.substr(0, equals));
    const bool is_setting = equals != std::string::npos && !key.empty() && key[0] != '-';
    const auto value = is_setting ? value_behind(trimmed(line.substr(equals + 1))) : std::nullopt;
    if (!value) {
      violations.add(where + "expected key = value, found \"" + line + "\"");
      continue;
    }
    const auto [first, is_new] = layer.emplace(key, Given{*value, where + key});
    violations.unless(is_new, where + key + " was already given by " + first->second.origin);
  }
  return layer;
}

std::string config_value(const std::string& value) {
  const bool is_plain =
      value == trimmed(value) && !value.starts_with('"') && value.find_first_of("#\n\r") == std::string::npos;
  if (is_plain) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    const std::size_t escape = kEscaped.find(c);
    quoted += escape == std::string_view::npos ? std::string(1, c) : std::string{'\\', kEscapes[escape]};
  }
  return quoted + "\"";
}

}  // namespace moeloom
