#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <cstdint>

namespace moeloom {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

/// Bytes of the character that this lead byte begins; 0: none begins so.
std::size_t length_of(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

/// The second byte's bounds keep out what is too long, surrogates and what lies above U+10FFFF.
bool may_follow(std::uint8_t lead, std::size_t place, std::uint8_t next) {
  std::uint8_t least = 0x80;
  std::uint8_t most = 0xBF;
  if (place == 1 && lead == 0xE0) least = 0xA0;
  if (place == 1 && lead == 0xED) most = 0x9F;
  if (place == 1 && lead == 0xF0) least = 0x90;
  if (place == 1 && lead == 0xF4) most = 0x8F;
  return least <= next && next <= most;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint8_t lead = byte_at(text, at);
    const std::size_t length = length_of(lead);
    std::size_t sound = length == 0 ? 0 : 1;
    while (sound < length && at + sound < text.size() && may_follow(lead, sound, byte_at(text, at + sound)))
      ++sound;
    if (length != 0 && sound == length)
      valid.append(text, at, length);
    else
      valid += "\uFFFD";
    at += std::max<std::size_t>(sound, 1);
  }
  return valid;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::uint8_t lead = byte_at(text, at++);
  if (lead < 0x80) return lead;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code_point = lead & (0x3FU >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    code_point = code_point << 6 | (byte_at(text, at++) & 0x3FU);
  return code_point;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) != 0x80; }));
}

bool is_white_space(char32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 || (code_point >= 0x2000 && code_point <= 0x200A) ||
         code_point == 0x2028 || code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

}  // namespace moeloom
