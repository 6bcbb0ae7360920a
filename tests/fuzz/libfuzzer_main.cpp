// What libFuzzer calls, for the target that MOELOOM_FUZZ_TARGET names, of the list that MOELOOM_FUZZ_LIST
// makes. The other lists are not linked: libFuzzer reads the counters of all code that is, after each input.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeloom::fuzz;
  static const std::vector<Target> list = MOELOOM_FUZZ_LIST();
  static const Target& target = *std::ranges::find(list, std::string_view(MOELOOM_FUZZ_TARGET),
                                                   [](const Target& t) { return std::string_view(t.name); });
  run(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
