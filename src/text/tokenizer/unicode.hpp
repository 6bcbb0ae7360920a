// What a tokenizer asks of Unicode, answered by utf8proc.
#pragma once

#include "moeloom/text/utf8.hpp"

#include <string_view>
#include <vector>

namespace moeloom::tokenizing {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Of general category M*.
bool is_mark(char32_t code_point);
/// Of general category N*, not only 0-9.
bool is_number(char32_t code_point);
/// ASCII's punctuation and symbols, or of category P*.
bool is_punctuation(char32_t code_point);
/// Full lower case, of one code point or two.
std::vector<char32_t> lower_case(char32_t code_point);

/// Whether an extended grapheme cluster may end between two neighbours. `state` begins as 0 and goes along
/// the text.
bool ends_cluster(char32_t before, char32_t after, int& state);

/// A character of a rewritten text. change 0: it stands for the next character of the old text; n > 0: it was
/// added behind the one before; -n: it stands for the next and n that follow it.
struct Change {
  char32_t code_point = 0;
  int change = 0;
};

/// Code points below this, and every one before another such, stand in the form as they are.
char32_t first_that_may_change(NormalForm form);

/// `text` in its normal form. In time n log n, also for a letter with n marks.
std::vector<Change> in_normal_form(std::string_view text, NormalForm form);

}  // namespace moeloom::tokenizing
