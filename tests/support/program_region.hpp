// A region of OpenMP's of the program's own, in which it calls the library.
#pragma once

#include <functional>

namespace moeloom::testing {

/// body() on each of so many threads; what an assertion says there counts. -> how many there were.
int in_program_region(int threads, const std::function<void()>& body);

}  // namespace moeloom::testing
