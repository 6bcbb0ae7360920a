// Keys of a tokenizer_config.json: which are read, which change no id, and which are refused.
#pragma once

#include <set>
#include <string>

#include "tokenizer/field.hpp"

namespace moeloom::tokenizing {

/// Throws ConfigError that names every key of `config` whose meaning is not known and that says something (is
/// not null, false or empty), unless `ignored` names it; it ends with the whole list to ignore.
void check_folder_keys(const Field& config, const std::set<std::string>& ignored);

}  // namespace moeloom::tokenizing
