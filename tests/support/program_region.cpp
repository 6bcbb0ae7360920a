#include "program_region.hpp"

namespace moeloom::testing {

void in_program_region(int threads, const std::function<void()>& body) {
#pragma omp parallel num_threads(threads)
  body();
}

}  // namespace moeloom::testing
