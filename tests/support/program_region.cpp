#include "program_region.hpp"

namespace moeloom::testing {

int in_program_region(int threads, const std::function<void()>& body) {
  int calls = 0;
#pragma omp parallel num_threads(threads) reduction(+ : calls)
  {
    body();
    ++calls;
  }
  return calls;
}

}  // namespace moeloom::testing
