#include "cli/flag_names.hpp"

#include <regex>

namespace moeloom {

std::string with_flag_names(std::string_view words) {
  static const std::regex name("`([a-z][a-z0-9-]*)`");
  return std::regex_replace(std::string(words), name, "--$1");
}

}  // namespace moeloom
