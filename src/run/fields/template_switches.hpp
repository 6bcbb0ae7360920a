// --template: what a chat template is told, as enable_thinking=false.
#pragma once

#include "moeloom/run/options.hpp"

#include <string>

namespace moeloom {

/// "key=value,key=value": a value is JSON, else a text. Commas within brackets and quotes belong to a value,
/// and so do those that no "key=" follows. Throws BadValue.
TemplateSwitches read_template_switches(const std::string& text);

}  // namespace moeloom
