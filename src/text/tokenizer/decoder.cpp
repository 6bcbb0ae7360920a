#include "tokenizer/decoder.hpp"

#include <algorithm>
#include <optional>

#include "tokenizer/byte_alphabet.hpp"

namespace moeloom::tokenizing {
namespace {

std::string joined(const std::vector<std::string>& strings) {
  std::string all;
  for (const std::string& each : strings) all += each;
  return all;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// Of "<0x0A>".
std::optional<char> byte_of_token(const std::string& token) {
  constexpr std::size_t kLength = 6;
  if (token.size() != kLength || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const int high = token[3] == '+' ? 0 : digit_of(token[3]);
  const int low = digit_of(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(16 * high + low);
}

void add_run(const std::string& bytes, std::vector<std::string>& strings) {
  if (bytes.empty()) return;
  if (valid_utf8(bytes) == bytes)
    strings.push_back(bytes);
  else
    strings.insert(strings.end(), bytes.size(), "\uFFFD");
}

/// One step on all strings; each overload is a type of tokenizer.json.
struct DecodeStep {
  std::vector<std::string>& strings;

  void operator()(LettersToBytes) const {
    std::string bytes;
    for (const std::string& each : strings) bytes += byte_level_bytes(each);
    strings.assign(1, valid_utf8(bytes));
  }

  void operator()(const Metaspace& metaspace) const {
    bool first = metaspace.prepend != Metaspace::Prepend::kNever;
    for (std::string& each : strings) {
      const std::string_view space = first ? "" : " ";
      first = false;
      std::string text;
      std::size_t at = 0;
      for (std::size_t mark = 0; (mark = each.find(metaspace.replacement, at)) != std::string::npos;
           at = mark + metaspace.replacement.size())
        text.append(each, at, mark - at).append(space);
      each = text.append(each, at);
    }
  }

  void operator()(const Replace& replace) const {
    const RegexSpace space;
    for (std::string& each : strings)
      each = replaced(Piece{.text = each}, replace, context_for(each, false, space)).text;
  }

  void operator()(Fuse) const { strings.assign(1, joined(strings)); }

  void operator()(const StripCharacter& strip) const {
    std::string character;
    append_utf8(character, strip.character);
    for (std::string& each : strings) {
      std::string_view rest = each;
      for (std::size_t i = 0; i < strip.start && rest.starts_with(character); ++i)
        rest.remove_prefix(character.size());
      for (std::size_t i = 0; i < strip.stop && rest.ends_with(character); ++i)
        rest.remove_suffix(character.size());
      each = std::string(rest);
    }
  }

  void operator()(ByteFallback) const {
    std::vector<std::string> result;
    std::string run;
    for (std::string& each : strings) {
      if (const auto byte = byte_of_token(each)) {
        run += *byte;
        continue;
      }
      add_run(run, result);
      run.clear();
      result.push_back(std::move(each));
    }
    add_run(run, result);
    strings = std::move(result);
  }
};

}  // namespace

std::string byte_level_bytes(const std::string& token) {
  return bytes_of_letters(token).value_or(token);
}

TokenDecoder::TokenDecoder(const Field& field) : is_none_(false) {
  add(field);
}

void TokenDecoder::add(const Field& field) {
  enum Type { kSequence, kByteLevel, kMetaspace, kReplace, kFuse, kStrip };
  switch (field.choice("type",
                       {"Sequence", "ByteLevel", "Metaspace", "Replace", "Fuse", "Strip", "ByteFallback"})) {
    case kSequence:
      for (const Field& each : field.member("decoders").items()) add(each);
      return;
    case kByteLevel:
      steps_.emplace_back(LettersToBytes{});
      return;
    case kMetaspace:
      steps_.emplace_back(metaspace_of(field));
      return;
    case kReplace:
      steps_.emplace_back(replace_of(field));
      return;
    case kFuse:
      steps_.emplace_back(Fuse{});
      return;
    case kStrip:
      steps_.emplace_back(StripCharacter{field.member("content").character(), field.member("start").id(),
                                         field.member("stop").id()});
      return;
    default:
      steps_.emplace_back(ByteFallback{});
  }
}

bool TokenDecoder::is_byte_level() const {
  return steps_.size() == 1 && std::holds_alternative<LettersToBytes>(steps_[0]);
}

void TokenDecoder::apply(std::vector<std::string>& strings) const {
  for (const DecoderStep& step : steps_) std::visit(DecodeStep{strings}, step);
}

}  // namespace moeloom::tokenizing
