// Changes of inputs that hold JSON, by its tree: of those whose bytes are changed hardly any is JSON any
// more.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace moeloom::fuzz {

/// A number from 0 to below `bound`, or 0 of a bound of 0.
using Draw = std::function<std::size_t(std::size_t bound)>;

/// One of the input's documents with one to four other values, members or names; what is around it stays, but
/// for its length where 8 bytes before it say that. Documents are the whole, what lies between bytes 0xFF,
/// lines, and texts in a document. Nothing where there is none.
std::optional<std::string> json_mutation(std::string_view input, const Draw& below);

}  // namespace moeloom::fuzz
