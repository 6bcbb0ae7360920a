#include "measure/copies.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace moeloom {
namespace {

#if defined(__AVX512F__)
constexpr Index kLanes = 16;
#elif defined(__AVX__)
constexpr Index kLanes = 8;
#else
constexpr Index kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), may_alias));
typedef float AnyLanes __attribute__((vector_size(kLanes * sizeof(float)), may_alias, aligned(4)));

enum class Store { kCached, kAround };

template <Store kStore>
void store(float* to, Lanes value) {
  if constexpr (kStore == Store::kCached) {
    *reinterpret_cast<AnyLanes*>(to) = value;
  } else {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, reinterpret_cast<__m512>(value));
#elif defined(__AVX__)
    _mm256_stream_ps(to, reinterpret_cast<__m256>(value));
#elif defined(__x86_64__)
    _mm_stream_ps(to, reinterpret_cast<__m128>(value));
#else
    *reinterpret_cast<Lanes*>(to) = value;
#endif
  }
}

constexpr Index kUnrolled = 4;                // vectors that are in registers at once
constexpr Index kBlock = kUnrolled * kLanes;  // floats

template <Index kAhead>
void prefetch(const float* from) {
  if constexpr (kAhead > 0)
    for (Index line = 0; line < kBlock; line += 16) __builtin_prefetch(from + kAhead + line, 0, 0);
}

bool whole_vectors(const float* to) {
  return reinterpret_cast<std::uintptr_t>(to) % sizeof(Lanes) == 0;
}

/// kAhead: floats that are prefetched before they are read; 0: the processor's own prefetch is all.
template <Store kStore, Index kAhead>
void spread_vectors(const float* from, Index cols, std::span<float* const> to) {
  Index j = 0;
  if (kStore == Store::kCached || std::ranges::all_of(to, whole_vectors))
    for (; j + kBlock <= cols; j += kBlock) {
      prefetch<kAhead>(from + j);
      Lanes row[kUnrolled];
      for (Index u = 0; u < kUnrolled; ++u)
        row[u] = *reinterpret_cast<const AnyLanes*>(from + j + u * kLanes);
      for (float* each : to)
        for (Index u = 0; u < kUnrolled; ++u) store<kStore>(each + j + u * kLanes, row[u]);
    }
  for (; j < cols; ++j)
    for (float* each : to) each[j] = from[j];
}

template <Store kStore, Index kAhead>
void gather_vectors(std::span<const float* const> from, Index cols, float* to) {
  Index j = 0;
  if (kStore == Store::kCached || whole_vectors(to))
    for (; j + kBlock <= cols; j += kBlock) {
      Lanes sum[kUnrolled] = {};
      for (const float* row : from) {
        prefetch<kAhead>(row + j);
        for (Index u = 0; u < kUnrolled; ++u)
          sum[u] += *reinterpret_cast<const AnyLanes*>(row + j + u * kLanes);
      }
      for (Index u = 0; u < kUnrolled; ++u) store<kStore>(to + j + u * kLanes, sum[u]);
    }
  for (; j < cols; ++j) {
    to[j] = 0;
    for (const float* row : from) to[j] += row[j];
  }
}

void spread_by_memcpy(const float* from, Index cols, std::span<float* const> to) {
  for (float* each : to)
    if (each != from) std::memcpy(each, from, at(cols) * sizeof(float));
}

void spread_by_movsb(const float* from, Index cols, std::span<float* const> to) {
#if defined(__x86_64__)
  for (float* each : to) {
    const void* source = from;
    void* target = each;
    std::size_t bytes = at(cols) * sizeof(float);
    asm volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(bytes) : : "memory");
  }
#else
  spread_by_memcpy(from, cols, to);
#endif
}

constexpr Index kNear = 128, kFar = 512;  // floats: 512 bytes and 2 KiB

constexpr std::array kWays = {
    CopyWay{"memcpy", spread_by_memcpy, gather_vectors<Store::kCached, 0>},
    CopyWay{"rep movsb", spread_by_movsb, gather_vectors<Store::kCached, 0>},
    CopyWay{"vectors", spread_vectors<Store::kCached, 0>, gather_vectors<Store::kCached, 0>},
    CopyWay{"vectors, prefetch", spread_vectors<Store::kCached, kNear>,
            gather_vectors<Store::kCached, kNear>},
    CopyWay{"streaming", spread_vectors<Store::kAround, 0>, gather_vectors<Store::kAround, 0>},
    CopyWay{"streaming, prefetch", spread_vectors<Store::kAround, kNear>,
            gather_vectors<Store::kAround, kNear>},
    CopyWay{"streaming, far prefetch", spread_vectors<Store::kAround, kFar>,
            gather_vectors<Store::kAround, kFar>}};

}  // namespace

std::span<const CopyWay> copy_ways() {
  return kWays;
}

void read_row(const float* from, Index cols) {
  Lanes sum[kUnrolled] = {};
  Index j = 0;
  for (; j + kBlock <= cols; j += kBlock)
    for (Index u = 0; u < kUnrolled; ++u) sum[u] += *reinterpret_cast<const AnyLanes*>(from + j + u * kLanes);
  float rest = 0;
  for (; j < cols; ++j) rest += from[j];
  asm volatile("" : : "m"(sum), "m"(rest));
}

const CopyWay& fastest_copy(const std::function<double(const CopyWay&)>& seconds, int rounds) {
  for (const CopyWay& way : kWays) seconds(way);  // warms caches and pages
  const std::vector<Samples> samples =
      take_turns(kWays.size(), rounds, [&](std::size_t i) { return seconds(kWays[i]); });
  return *std::ranges::min_element(kWays, {}, [&](const CopyWay& way) {
    return spread_of(samples[static_cast<std::size_t>(&way - kWays.data())]).p10;
  });
}

}  // namespace moeloom
