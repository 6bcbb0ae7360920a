// Settings in a file: `key = value` a line, # comments.
//
// A value runs to the end of the line or to a # after a space. A value that needs spaces at its ends, a # or
// a line break stands in double quotes, with \" \\ \n \r \t inside.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

struct ConfigLine {
  std::string key;
  std::string value;
  Index line = 0;  // from 1
};

/// Throws IoError for a file that cannot be read, ConfigError with every line that is no setting and every
/// key given twice.
std::vector<ConfigLine> read_config_file(const std::filesystem::path& path);
std::vector<ConfigLine> parse_config(const std::string& text, const std::string& origin);

/// The value as it must be written, in quotes where it needs them.
std::string config_value(const std::string& value);

}  // namespace moeloom
