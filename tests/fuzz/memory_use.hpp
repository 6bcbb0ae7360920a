// Bytes that operator new has handed out, so that a test can tell what an input made a parser ask for.
#pragma once

#include <cstddef>

namespace moeloom::fuzz {

/// Begins a count.
void count_memory();
/// The most that was held at a time since then, beyond what was held before.
std::size_t most_memory();

}  // namespace moeloom::fuzz
