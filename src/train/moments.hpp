// AdamW's two moments of each weight, as floats or in fewer bytes.
//
// kBf16: 2 bytes. kInt8: 1 byte and a scale for each block of 256, after Dettmers et al. 2022 (8-bit
// optimizers via block-wise quantization): s, the largest size in the block, is its scale, and a code q means
// s (q / 127)^2 with the sign of q for a first moment and s (q / 255)^4 for a second one, so that small
// numbers keep some digits. A second moment above 0 never becomes 0, by whose root a first one is divided.
//
// An update changes a moment by less than these formats can tell apart, so it rounds at random, up as often
// as keeps the mean (stochastic rounding). The random bits depend on weight and update alone: the numbers are
// the same on every mesh.
#pragma once

#include "moeloom/base/random.hpp"
#include "moeloom/job/optimizer_kind.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace moeloom {

/// Elements that share a piece of memory, and how many floats' worth that is.
struct MomentUnit {
  Index elements = 1;
  Index words = 1;
};
constexpr MomentUnit unit_of(MomentFormat format) {
  constexpr std::array<MomentUnit, 3> units = {MomentUnit{1, 1}, {2, 1}, {256, 1 + 256 / 4}};
  return units[static_cast<std::size_t>(format)];
}
/// Floats' worth of memory of `count` elements.
constexpr Index words_of(MomentFormat format, Index count) {
  return ceil_div(count, unit_of(format).elements) * unit_of(format).words;
}

/// Of one element.
constexpr double bytes_of(MomentFormat format) {
  const auto [elements, words] = unit_of(format);
  return sizeof(float) * static_cast<double>(words) / static_cast<double>(elements);
}

enum class Moment { kFirst, kSecond };

/// Elements of one moment that someone else owns, from the beginning of a unit.
class MomentView {
 public:
  static constexpr Index kPiece = 256;  // what is decoded at once: whole units of every format

  MomentView(MomentFormat format, Moment moment, float* words, Index count)
      : format_(format), moment_(moment), words_(words), count_(count) {}

  Index size() const { return count_; }
  MomentFormat format() const { return format_; }
  /// Of kBf16.
  std::uint16_t* halves() const { return reinterpret_cast<std::uint16_t*>(words_); }
  /// The memory: all zeros means that all elements are 0.
  std::span<float> words() const { return {words_, at(words_of(format_, count_))}; }
  /// The same elements in memory of as many words.
  MomentView at_words(float* words) const { return {format_, moment_, words, count_}; }
  /// Elements [begin, begin + count), from the beginning of a unit.
  MomentView part(Index begin, Index count) const;

  /// Where they lie if they are floats, else decoded into `memory`.
  std::span<const float> read(std::vector<float>& memory) const;
  /// [size()], each rounded to the nearest: what was read comes back.
  void write(std::span<const float> values) const;

  /// Of at most kPiece elements of kBf16 or kInt8.
  void decode(std::span<float> values) const;
  /// random [size()]: 16 bits each, of which the rounding is made.
  void encode(std::span<const float> values, std::span<const std::uint16_t> random) const;

 private:
  MomentFormat format_;
  Moment moment_;
  float* words_;
  Index count_;
};

/// To bf16: up as often as 16 random bits say, so that the mean stays; what is not finite stays so.
inline std::uint16_t bf16_at_random(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  return static_cast<std::uint16_t>((bits + (is_finite ? random : 0u)) >> 16);
}

/// Owns both moments of elements that begin at whole units; of some elements there may be no second one.
class Moments {
 public:
  Moments() = default;
  /// Zeros.
  Moments(MomentFormat format, Index first, Index second)
      : format_(format), words_{Matrix(1, words_of(format, first)), Matrix(1, words_of(format, second))} {}

  MomentFormat format() const { return format_; }
  MomentView view(Moment moment, Index begin, Index count);
  /// All of one moment's memory.
  std::span<float> words(Moment moment) { return words_[static_cast<std::size_t>(moment)].view().flat(); }

 private:
  MomentFormat format_ = MomentFormat::kFp32;
  std::array<Matrix, 2> words_;
};

}  // namespace moeloom
