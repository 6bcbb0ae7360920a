// The byte-level alphabet of GPT-2: each byte a letter that can be seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moeloom::tokenizing {

char32_t letter_of(std::uint8_t byte);
/// None for a letter that is not of the alphabet.
std::optional<std::uint8_t> byte_of(char32_t letter);

/// The bytes that a text's letters stand for; none if any of them is no such letter.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace moeloom::tokenizing
