// UTF-8 as code points. All but valid_utf8 take texts that are well formed: valid_utf8 makes them so. Pure
// functions, no collective, nothing thrown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moeloom {

/// Bytes [begin, end) of some text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// The text with each maximal ill-formed part replaced by one U+FFFD, by the rule of the WHATWG's decoder
/// (Unicode Standard, 3.9, "substitution of maximal subparts").
std::string valid_utf8(std::string_view text);

/// The code point that begins at byte `at`; `at` then stands behind it. `text` is well formed, `at` < its
/// size.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// code_point: at most U+10FFFF, no surrogate.
void append_utf8(std::string& text, char32_t code_point);

std::size_t count_code_points(std::string_view text);

/// Unicode's property White_Space, of 25 code points.
bool is_white_space(char32_t code_point);

}  // namespace moeloom
