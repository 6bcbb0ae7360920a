#include "moeloom/measure/peaks.hpp"

#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/measure/paired.hpp"
#include "tensor/lanes.hpp"

#include <array>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace moeloom {
namespace {

constexpr int kRounds = 100'000;
constexpr int kChains = 10;  // latency 4 times two units, and a reserve

/// The sums stay in registers and no round can be left out: something may have changed them.
void multiply_and_add() {
  std::array<Lanes, kChains> sums{};
  const Lanes factor = broadcast(0.999f), term = broadcast(1e-6f);
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 16
    for (Lanes& sum : sums) {
      Lanes next = multiply_add(sum, factor, term);
      keep_in_register(next);
      sum = next;
    }
  Lanes used{};
  for (const Lanes& sum : sums) used += sum;
  asm volatile("" : : "m"(used));
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bf16"))) void multiply_and_add_bf16() {
  __m512 a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{};
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  for (int round = 0; round < kRounds; ++round) {
    a = _mm512_dpbf16_ps(a, factor, factor), b = _mm512_dpbf16_ps(b, factor, factor);
    c = _mm512_dpbf16_ps(c, factor, factor), d = _mm512_dpbf16_ps(d, factor, factor);
    e = _mm512_dpbf16_ps(e, factor, factor), f = _mm512_dpbf16_ps(f, factor, factor);
    g = _mm512_dpbf16_ps(g, factor, factor), h = _mm512_dpbf16_ps(h, factor, factor);
    i = _mm512_dpbf16_ps(i, factor, factor), j = _mm512_dpbf16_ps(j, factor, factor);
    asm volatile(""
                 : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j));
  }
}
#endif

void multiply_tiles() {
  multiply_tiles_in_registers(kRounds);
}

double gflops_of(void (*loop)(), int threads, double seconds, double flops_of_loop) {
  Index loops = 0;
  double elapsed = 0;
  do {
    elapsed += seconds_of([&] { parallel_for(threads, [&](Index) { loop(); }); });
    loops += threads;
  } while (elapsed < seconds);
  return 1e-9 * static_cast<double>(loops) * flops_of_loop / elapsed;
}

}  // namespace

double fma_peak_gflops(int threads, double seconds) {
  return gflops_of(multiply_and_add, threads, seconds, 2.0 * static_cast<double>(kLanes) * kRounds * kChains);
}

std::optional<double> bf16_peak_gflops(int threads, double seconds) {
  if (best_bf16_unit() == Bf16Unit::kTiles)
    return gflops_of(multiply_tiles, threads, seconds, 2.0 * 16 * 16 * 32 * kRounds);
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512bf16"))
    return gflops_of(multiply_and_add_bf16, threads, seconds, 4.0 * 16 * kRounds * kChains);
#endif
  return std::nullopt;
}

double peak_gflops(DType type, int threads, double seconds) {
  return type == DType::kBF16 ? bf16_peak_gflops(threads, seconds).value()
                              : fma_peak_gflops(threads, seconds);
}

}  // namespace moeloom
