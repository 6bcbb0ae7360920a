#include "report/html.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

constexpr const char* kReplacement = "&#xFFFD;";

/// Bytes of the UTF-8 character at the front of `text` (not empty); 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Longer than needed, a surrogate, or beyond the last code point.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

std::string escaped_ascii(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return (c >= ' ' && c != 0x7F) || c == '\n' || c == '\t' ? std::string(1, c) : kReplacement;
  }
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 1)
      escaped += escaped_ascii(text[0]);
    else
      escaped += length == 0 ? kReplacement : std::string(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return escaped;
}

std::string readable_bytes(double bytes) {
  constexpr std::array kUnits = {" B", " KiB", " MiB", " GiB", " TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return readable(bytes) + kUnits[unit];
}

std::string readable_seconds(double seconds) {
  if (seconds < 1) return milliseconds_text(seconds);
  return readable(seconds) + " s";
}

}  // namespace moeloom
