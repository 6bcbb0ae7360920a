// How libFuzzer changes inputs that may hold JSON: half of them by the tree, the others by their bytes.
#include <cstdint>
#include <cstring>
#include <random>

#include "fuzz/json_mutations.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed) {
  std::minstd_rand draws(seed);
  const auto below = [&](std::size_t bound) { return bound == 0 ? 0 : draws() % bound; };
  if (below(2) == 0) return LLVMFuzzerMutate(data, size, most);
  const auto changed = moeloom::fuzz::json_mutation({reinterpret_cast<const char*>(data), size}, below);
  if (!changed || changed->size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, changed->data(), changed->size());
  return changed->size();
}
