#include "cli/config_file.hpp"

#include "moeloom/base/text.hpp"

#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace moeloom {
namespace {

constexpr std::string_view kEscaped = "\"\\\n\r\t";
constexpr std::string_view kEscapes = "\"\\nrt";

/// text starts with a quote -> what it encloses; none if it is not closed, or more than a comment follows.
std::optional<std::string> unquoted(const std::string& text) {
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      const std::string rest = trimmed(text.substr(i + 1));
      return rest.empty() || rest[0] == '#' ? std::optional(value) : std::nullopt;
    }
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    const std::size_t escape = ++i < text.size() ? kEscapes.find(text[i]) : std::string_view::npos;
    if (escape == std::string_view::npos) return std::nullopt;
    value += kEscaped[escape];
  }
  return std::nullopt;
}

std::string without_comment(const std::string& text) {
  for (std::size_t at = text.find('#'); at != std::string::npos; at = text.find('#', at + 1))
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t') return trimmed(text.substr(0, at));
  return trimmed(text);
}

/// Key and value.
std::optional<std::pair<std::string, std::string>> parse_line(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = trimmed(text.substr(0, equals));
  if (equals == std::string::npos || key.empty() || key[0] == '-') return std::nullopt;
  const std::string said = trimmed(text.substr(equals + 1));
  const auto value = said.starts_with('"') ? unquoted(said) : std::optional(without_comment(said));
  return value ? std::optional(std::pair(key, *value)) : std::nullopt;
}

}  // namespace

Layer parse_config(const std::string& text, const std::string& origin, Violations& violations) {
  Layer layer;
  std::istringstream stream(text);
  std::string raw;
  for (Index number = 1; std::getline(stream, raw); ++number) {
    const std::string content = trimmed(raw);
    if (content.empty() || content[0] == '#') continue;
    const std::string where = origin + ":" + std::to_string(number) + ": ";
    const auto line = parse_line(content);
    if (!line) {
      violations.add(where + "expected key = value, found \"" + content + "\"");
      continue;
    }
    const auto& [key, value] = *line;
    const auto [first, is_new] = layer.emplace(key, Given{value, where + key});
    violations.unless(is_new, where + key + " was already given by " + first->second.origin);
  }
  return layer;
}

std::string config_value(const std::string& value) {
  const bool plain =
      value == trimmed(value) && !value.starts_with('"') && value.find_first_of("#\n\r") == std::string::npos;
  if (plain) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    const std::size_t escape = kEscaped.find(c);
    quoted += escape == std::string_view::npos ? std::string(1, c) : std::string{'\\', kEscapes[escape]};
  }
  return quoted + "\"";
}

}  // namespace moeloom
