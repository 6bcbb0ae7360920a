// Options of train that earlier builds had: a run folder may say them, and resumes without.
#pragma once

#include <optional>
#include <string>

namespace moeloom {

/// What became of option `name` with `value`, in one line; empty where the value was what happens anyway.
/// None: there was no such option.
std::optional<std::string> what_became_of(const std::string& name, const std::string& value);

}  // namespace moeloom
