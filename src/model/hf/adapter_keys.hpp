// What an adapter_config.json may say: which of its keys change what an adapter computes.
#pragma once

#include "moeloom/base/violations.hpp"
#include "moeloom/io/document.hpp"

#include <set>

namespace moeloom {

/// What there is to do about an adapter that is refused.
inline const std::string kMergeFirst = "merge it with PEFT (merge_and_unload) and load the result";

/// Null, false, no text, an empty list or object.
bool says_nothing(const Document& document, const std::string& key);

/// Adds what is not supported, by key, and every key that is not known, not ignored and says something.
void check_adapter_keys(const Document& document, const std::set<std::string>& ignored,
                        Violations& violations);

}  // namespace moeloom
