#include "cli/config_file.hpp"

#include "moeloom/base/violations.hpp"
#include "moeloom/io/text_file.hpp"

#include <map>
#include <optional>
#include <sstream>

#include "cli/option_values.hpp"

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

std::optional<ConfigLine> parse_line(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return std::nullopt;
  ConfigLine line;
  line.key = trimmed(text.substr(0, equals));
  const std::string value = trimmed(text.substr(equals + 1));
  const auto read = value.starts_with('"') ? unquoted(value) : std::optional(without_comment(value));
  if (line.key.empty() || line.key[0] == '-' || !read) return std::nullopt;
  line.value = *read;
  return line;
}

}  // namespace

std::vector<ConfigLine> parse_config(const std::string& text, const std::string& origin) {
  std::vector<ConfigLine> lines;
  Violations violations;
  std::map<std::string, Index> seen;
  std::istringstream stream(text);
  std::string raw;
  for (Index number = 1; std::getline(stream, raw); ++number) {
    const std::string content = trimmed(raw);
    if (content.empty() || content[0] == '#') continue;
    const std::string where = origin + ":" + std::to_string(number) + ": ";
    std::optional<ConfigLine> line = parse_line(content);
    if (!line) {
      violations.add(where + "expected key = value, found \"" + content + "\"");
      continue;
    }
    line->line = number;
    if (const auto [first, is_new] = seen.emplace(line->key, number); !is_new)
      violations.add(where + line->key + " was already given on line " + std::to_string(first->second));
    lines.push_back(*line);
  }
  violations.throw_if_any();
  return lines;
}

std::vector<ConfigLine> read_config_file(const std::filesystem::path& path) {
  return parse_config(read_text_file(path), path.string());
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
