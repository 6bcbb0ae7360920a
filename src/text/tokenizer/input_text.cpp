#include "tokenizer/input_text.hpp"

#include <cstdint>
#include <cstring>

namespace moeloom::tokenizing {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

bool is_ascii(std::string_view bytes) {
  std::uint64_t seen = 0;
  std::size_t at = 0;
  for (; at + sizeof seen <= bytes.size(); at += sizeof seen) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes.data() + at, sizeof eight);
    seen |= eight;
  }
  for (; at < bytes.size(); ++at) seen |= static_cast<std::uint8_t>(bytes[at]);
  return (seen & 0x8080808080808080U) == 0;
}

/// Bytes of the ill-formed part at `at`, which one U+FFFD stands for.
std::size_t length_of_ill_formed(std::string_view bytes, std::size_t at) {
  for (std::size_t length = 3; length > 1; --length)
    if (at + length <= bytes.size() && valid_utf8(bytes.substr(at, length)) == kReplacement) return length;
  return 1;
}

std::vector<ByteRange> origins_of(std::string_view repaired, std::string_view bytes) {
  std::vector<ByteRange> origins;
  origins.reserve(repaired.size());
  for (std::size_t place = 0, at = 0; place < repaired.size();) {
    const std::size_t begin = place;
    next_code_point(repaired, place);
    const std::string_view character = repaired.substr(begin, place - begin);
    const bool kept = bytes.substr(at).starts_with(character);
    const std::size_t length = kept ? character.size() : length_of_ill_formed(bytes, at);
    origins.insert(origins.end(), character.size(), {at, at + length});
    at += length;
  }
  return origins;
}

}  // namespace

InputText::InputText(std::string_view bytes, bool tracked) : bytes_(bytes) {
  if (is_ascii(bytes)) return;
  std::string valid = valid_utf8(bytes);
  if (valid == bytes) return;
  repaired_.emplace();
  repaired_->text = std::move(valid);
  if (tracked) repaired_->origins = origins_of(repaired_->text, bytes);
}

}  // namespace moeloom::tokenizing
