// Letters as Python's str knows them: case, classes, what may be printed.
#pragma once

#include <string>
#include <string_view>

namespace moeloom::jinja {

/// One of White_Space or U+001C to U+001F.
bool is_python_space(char32_t letter);
/// Whether repr shows it as it is.
bool is_printable(char32_t letter);
bool is_letter(char32_t letter);
bool is_digit(char32_t letter);    // of any writing system, superscripts too
bool is_decimal(char32_t letter);  // category Nd
/// The digit that a letter of category Nd is.
int decimal_value(char32_t letter);
bool is_numeric(char32_t letter);
bool is_upper(char32_t letter);
bool is_lower(char32_t letter);
bool is_identifier(std::string_view text);
/// Whether each word begins with a capital and goes on with small letters.
bool is_titled(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
std::string case_swapped(std::string_view text);

/// Without the letters at its ends that `drops`.
std::string_view without_left(std::string_view text, bool (*drops)(char32_t));
std::string_view without_right(std::string_view text, bool (*drops)(char32_t));
std::string_view without_left(std::string_view text, std::string_view letters);
std::string_view without_right(std::string_view text, std::string_view letters);

/// Where the code point `index` begins; the text's size beyond its end.
std::size_t byte_of(std::string_view text, std::size_t index);
/// As string_view::find, in linear time for every text.
std::size_t find_in(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t count_in(std::string_view text, std::string_view part);
std::string replaced(std::string_view text, std::string_view part, std::string_view by, std::size_t most);

}  // namespace moeloom::jinja
