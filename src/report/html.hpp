// Text for a web page: escaped, and numbers as people write them.
#pragma once

#include "base/text.hpp"

#include <string>
#include <string_view>

namespace moeloom {

/// & < > " ' as entities; control characters other than line breaks and tabs, and bytes that are no UTF-8, as
/// the replacement character.
std::string html_escaped(std::string_view text);

std::string readable_bytes(double bytes);
/// "340 ms", "2.1 s".
std::string readable_seconds(double seconds);

}  // namespace moeloom
