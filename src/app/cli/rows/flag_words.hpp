// Where the library's words for settings meet the program's flags.
//
// The library does not know the command line: its errors and reasons name fields, in words that anybody who
// links it understands. Whoever runs the program is told the flag as well, where such a text is printed; what
// the field of an option is called stands in its row.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

struct FlagWord {
  std::string field;  // "learning rate"
  std::string flag;   // "--lr", or an environment variable
  std::regex with_value, alone;
};

/// A field of one word is also an English one, and is known by its value alone: "combine = fast".
const std::vector<FlagWord>& flag_words();

/// What a person types in place of a field and its value, and beside the first mention of a field without
/// one:
///
///   choose dispatcher = alltoall           choose --dispatcher alltoall
///   lower the learning rate                lower the learning rate (--lr)
///
/// and a name in backquotes, as `lr`, is one of a flag.
///
/// A text that names the flag already is left alone; so are words in quotes, which somebody else said.
std::string with_flags(std::string_view words);

}  // namespace moeloom
