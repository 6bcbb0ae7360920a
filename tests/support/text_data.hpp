// The reference data of the text room: found by listing folders, so that another folder of the same structure
// needs no code.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom::testing {

/// The folder MOELOOM_TEXT names; if that is unset, ../shared/text beside the source tree, else its own
/// tests/data/text. Throws IoError if there is none: such a test may not pass because nothing was found.
std::filesystem::path text_root();

/// The folders of text_root()/templates, by name. Throws IoError if there is none, or if one has no template
/// or cases: a template that no test reads is a failure.
std::vector<std::filesystem::path> template_folders();

/// The lines of a .jsonl file. Throws IoError for an empty one.
std::vector<JsonValue> json_lines(const std::filesystem::path& path);

}  // namespace moeloom::testing
