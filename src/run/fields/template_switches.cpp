#include "fields/template_switches.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <vector>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Of "key=": a variable's name as templates write it.
std::size_t key_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() &&
         (is_letter(text[length]) || (length > 0 && text[length] >= '0' && text[length] <= '9')))
    ++length;
  return length > 0 && length < text.size() && text[length] == '=' ? length : 0;
}

/// Behind the value that `text` begins with.
std::size_t value_length(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '[' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    } else if (text[i] == ',' && depth <= 0 && key_length(text.substr(i + 1)) > 0) {
      return i;
    }
  }
  return text.size();
}

JsonValue value_of(const std::string& key, const std::string& text) {
  // As a text each of them would be true.
  for (const auto& [python, json] :
       {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")})
    if (text == python) throw BadValue(key + " = " + text + " would be a text; write " + json);
  try {
    return parse_json_value(text, key);
  } catch (const IoError&) {
    JsonValue value;
    value.value = text;
    return value;
  }
}

}  // namespace

TemplateSwitches read_template_switches(const std::string& text) {
  TemplateSwitches switches{.text = text};
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = key_length(rest);
    if (length == 0) throw BadValue("expected key=value, found \"" + std::string(rest) + "\"");
    const std::string key(rest.substr(0, length));
    rest.remove_prefix(length + 1);
    const std::size_t end = value_length(rest);
    switches.variables.push_back({key, value_of(key, std::string(rest.substr(0, end)))});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return switches;
}

}  // namespace moeloom
