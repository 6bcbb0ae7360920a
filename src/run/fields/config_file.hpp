// Settings in a file: `key = value` a line, # comments.
//
// A value runs to the end of the line or to a # after a space. A value that needs spaces at its ends, a # or
// a line break stands in double quotes, with \" \\ \n \r \t inside.
#pragma once

#include "moeloom/base/violations.hpp"

#include <map>
#include <string>

namespace moeloom {

/// A value and where it was said: "--lr" or "tiny.conf:4: lr".
struct Given {
  std::string value;
  std::string origin;
};
/// By option.
using Layer = std::map<std::string, Given>;

/// Every line that is no setting and every key given twice is added to `violations`.
Layer parse_config(const std::string& text, const std::string& origin, Violations& violations);

/// The value as it must be written, in quotes where it needs them.
std::string config_value(const std::string& value);

}  // namespace moeloom
