// An adapter's settings as one word: "r=16,alpha=32,targets=attention,experts".
#pragma once

#include "moeloom/model/hf/adapter_settings.hpp"

#include <optional>
#include <string>

namespace moeloom {

/// KEY=VALUE with commas between; what follows targets= without a = of its own are more targets. none: no
/// adapter. Throws BadValue that says what was expected.
std::optional<AdapterSettings> read_adapter(const std::string& text);
/// The same again.
std::string adapter_text(const std::optional<AdapterSettings>& settings);

}  // namespace moeloom
