// --template: what a chat template is told, as enable_thinking=false.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <string>

namespace moeloom {

struct TemplateSwitches {
  std::string text;  // as it was said
  JsonValue::Object variables = {};
};

/// "key=value,key=value": a value is JSON, else a text. Commas within brackets and quotes belong to a value,
/// and so do those that no "key=" follows. Throws BadValue.
TemplateSwitches read_template_switches(const std::string& text);

}  // namespace moeloom
