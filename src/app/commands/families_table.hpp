// What moeloom inspect --families prints: the rows of the table of families in words.
#pragma once

#include "model/hf/family.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// model_type, mixing of tokens, router and experts, experts' tensors; "" where a family has none.
std::vector<std::string> family_row(const Family& family);

/// A table in Markdown's form, families that do not run behind it with the reason. Returns the exit code.
int print_families();

}  // namespace moeloom
