// Letters whose case or kind utf8proc does not know: those that become several letters, digits that are no
// decimals, ideographs of numbers, and where identifiers differ from categories.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moeloom::jinja {

/// What a letter becomes; none: one letter, or itself.
std::optional<std::u32string_view> several_upper(char32_t letter);
std::optional<std::u32string_view> several_title(char32_t letter);

bool is_other_digit(char32_t letter);       // Numeric_Type=Digit
bool is_number_ideograph(char32_t letter);  // a numeric letter outside of the categories N*

enum class IdentifierRule { kCategory, kNever, kAlways, kFollows };
/// Of XID_Start and XID_Continue: what the category does not say. kFollows: not at the begin.
IdentifierRule identifier_rule(char32_t letter);

}  // namespace moeloom::jinja
