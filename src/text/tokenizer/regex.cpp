#include "tokenizer/regex.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <oniguruma.h>

namespace moeloom::tokenizing {
namespace {

constexpr std::size_t kLongestText = std::numeric_limits<int>::max();  // Oniguruma's places are ints

const OnigUChar* bytes_of(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

std::string message_of(int code, OnigErrorInfo* info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
  const int length = onig_error_code_to_str(message.data(), code, info);
  return {reinterpret_cast<const char*>(message.data()), static_cast<std::size_t>(std::max(length, 0))};
}

/// A pattern that splits a text gives up each place of it a few times at most; one that runs wild does so
/// exponentially often.
unsigned long retries_for(std::size_t bytes) {
  return 100'000UL + 16UL * static_cast<unsigned long>(bytes);
}

void start_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

}  // namespace

RegexSpace::RegexSpace() : region_(onig_region_new()), limits_(onig_new_match_param()) {
  onig_initialize_match_param(limits_.get());
}

void RegexSpace::Free::operator()(re_registers* region) const {
  onig_region_free(region, 1);
}

void RegexSpace::Free::operator()(OnigMatchParam* limits) const {
  onig_free_match_param(limits);
}

Regex::Regex(std::string pattern, const std::string& origin) : pattern_(std::move(pattern)) {
  start_engine();
  regex_t* compiled = nullptr;
  OnigErrorInfo info{};
  const int code = onig_new(&compiled, bytes_of(pattern_.data()), bytes_of(pattern_.data() + pattern_.size()),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL)
    throw ConfigError({origin + ": not a regular expression: \"" + pattern_ +
                       "\": " + message_of(code, code == ONIG_NORMAL ? nullptr : &info)});
  compiled_.reset(compiled, onig_free);
}

std::optional<ByteRange> Regex::search(std::string_view text, std::size_t from,
                                       const RegexSpace& space) const {
  if (text.size() > kLongestText)
    throw ConfigError({"a text of " + std::to_string(text.size()) +
                       " bytes is too long for a regular expression; at most " +
                       std::to_string(kLongestText)});
  const OnigUChar* begin = bytes_of(text.data());
  const OnigUChar* end = begin + text.size();
  onig_set_retry_limit_in_match_of_match_param(space.limits(), retries_for(text.size()));
  onig_set_retry_limit_in_search_of_match_param(space.limits(), retries_for(text.size()));
  const int found = onig_search_with_param(compiled_.get(), begin, end, begin + from, end, space.region(),
                                           ONIG_OPTION_NONE, space.limits());
  if (found == ONIG_MISMATCH) return std::nullopt;
  if (found < 0)
    throw ConfigError({"the regular expression \"" + pattern_ + "\" gives up on a text of " +
                       std::to_string(text.size()) + " bytes: " + message_of(found, nullptr)});
  return ByteRange{static_cast<std::size_t>(space.region()->beg[0]),
                   static_cast<std::size_t>(space.region()->end[0])};
}

bool is_word_character(char32_t code_point) {
  constexpr char32_t kNonJoiner = 0x200C, kJoiner = 0x200D, kLatin1End = 0x100;
  // The engine's own table for Latin-1 counts superscripts and fractions in, its patterns do not.
  if (code_point < kLatin1End)
    return ONIGENC_IS_CODE_ALPHA(ONIG_ENCODING_UTF8, code_point) || code_point == '_' ||
           (code_point >= '0' && code_point <= '9');
  start_engine();
  return code_point == kNonJoiner || code_point == kJoiner ||
         ONIGENC_IS_CODE_WORD(ONIG_ENCODING_UTF8, static_cast<OnigCodePoint>(code_point));
}

}  // namespace moeloom::tokenizing
