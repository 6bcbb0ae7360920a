// Values that say nothing, whatever their key means.
#pragma once

#include "moeloom/io/document.hpp"

#include <string>

namespace moeloom {

/// Null, false, no text, an empty list or object.
bool says_nothing(const Document& document, const std::string& key);

}  // namespace moeloom
