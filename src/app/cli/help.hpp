// The page of a command's --help.
#pragma once

#include <string>
#include <utility>

#include "fields/option_table.hpp"

namespace moeloom {

/// What --help prints of a command, and its options, whose fields are gone: their names and kinds are read
/// alone.
struct Help {
  std::string text;
  OptionTable table;
};
/// `about` stands before the options.
inline Help operator+(const std::string& about, Help help) {
  return {about + help.text, std::move(help.table)};
}

}  // namespace moeloom
