#include "tokenizer/byte_alphabet.hpp"

#include "moeloom/text/utf8.hpp"

#include <array>

namespace moeloom::tokenizing {
namespace {

constexpr char32_t kFirstMoved = 0x100;
constexpr std::size_t kMoved = 68;

constexpr bool shows_itself(std::size_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<std::uint8_t, kMoved> moved{};
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  std::size_t moved = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    alphabet.letters[byte] = static_cast<char32_t>(byte);
    if (shows_itself(byte)) continue;
    alphabet.letters[byte] = kFirstMoved + static_cast<char32_t>(moved);
    alphabet.moved[moved++] = static_cast<std::uint8_t>(byte);
  }
  return alphabet;
}();

}  // namespace

char32_t letter_of(std::uint8_t byte) {
  return kAlphabet.letters[byte];
}

std::optional<std::uint8_t> byte_of(char32_t letter) {
  if (letter < kFirstMoved && shows_itself(letter)) return static_cast<std::uint8_t>(letter);
  if (letter >= kFirstMoved && letter < kFirstMoved + kMoved) return kAlphabet.moved[letter - kFirstMoved];
  return std::nullopt;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  bytes.reserve(letters.size());
  for (std::size_t at = 0; at < letters.size();) {
    const auto byte = byte_of(next_code_point(letters, at));
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

}  // namespace moeloom::tokenizing
