// What libFuzzer calls, for the target that MOELOOM_FUZZ_TARGET names.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeloom::fuzz;
  static const Target& target = *std::ranges::find(targets(), std::string_view(MOELOOM_FUZZ_TARGET),
                                                   [](const Target& t) { return std::string_view(t.name); });
  run(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
