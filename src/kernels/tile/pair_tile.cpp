#include "tile/pair_tile.hpp"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace moeloom::packed {

#ifdef __AVX512BF16__

namespace {

/// Of this file alone, so that its tiles are too: an element of the name that others have would share theirs.
struct Pairs : Bf16 {
  static Lanes multiply_add(Factor a, Lanes b, Lanes sum) {
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b));
  }
};

}  // namespace

bool built_with_pairs() {
  return true;
}

TileFunction pair_tile(Index rows, Index cols) {
  return tile_function<Pairs>(rows, cols);
}

#else

bool built_with_pairs() {
  return false;
}

TileFunction pair_tile(Index rows, Index cols) {
  return tile_function<Bf16>(rows, cols);
}

#endif

bool cpu_multiplies_pairs() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

bool multiplies_pairs() {
  return built_with_pairs() && cpu_multiplies_pairs();
}

}  // namespace moeloom::packed
