#include "tensor/squares.hpp"

#include "tensor/eight.hpp"

#include <array>
#include <cstring>

namespace moeloom {
namespace {

using Wide = double __attribute__((vector_size(64)));

constexpr std::size_t kLine = 64;  // bytes
// Ahead of what is read: where the processor does not fetch ahead by itself, as on some virtual machines,
// numbers of two bytes came at a fifth of a copy's speed.
constexpr std::size_t kAhead = 4096;
/// Partial sums, eight each: as many as hide how long an addition takes.
constexpr std::size_t kSums = 4;

Wide eight_from(const float* from) {
  return __builtin_convertvector(load8(from), Wide);
}

Wide eight_from(const std::uint16_t* from) {
  using Halves = std::uint16_t __attribute__((vector_size(16)));
  using Words = std::uint32_t __attribute__((vector_size(32)));
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Eight floats;
  std::memcpy(&floats, &words, sizeof floats);
  return __builtin_convertvector(floats, Wide);
}

template <typename Number>
double squares_of(std::span<const Number> values) {
  Wide sums[kSums] = {};
  const Number* from = values.data();
  std::size_t left = values.size();
  for (; left >= 8 * kSums; left -= 8 * kSums, from += 8 * kSums) {
    const char* const ahead = reinterpret_cast<const char*>(from) + kAhead;
    for (std::size_t byte = 0; byte < 8 * kSums * sizeof(Number); byte += kLine)
      __builtin_prefetch(ahead + byte);
    for (std::size_t i = 0; i < kSums; ++i) {
      const Wide eight = eight_from(from + 8 * i);
      sums[i] += eight * eight;
    }
  }
  if (left > 0) {
    std::array<Number, 8 * kSums> rest{};
    std::memcpy(rest.data(), from, left * sizeof(Number));
    for (std::size_t i = 0; i < kSums; ++i) {
      const Wide eight = eight_from(rest.data() + 8 * i);
      sums[i] += eight * eight;
    }
  }
  const Wide all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return ((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7]));
}

}  // namespace

double sum_of_squares(std::span<const float> values) {
  return squares_of(values);
}
double sum_of_squares(std::span<const std::uint16_t> halves) {
  return squares_of(halves);
}

}  // namespace moeloom
