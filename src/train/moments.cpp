#include "moeloom/train/moments.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace moeloom {
namespace {

constexpr float kOneIn16Bits = 1.0f / 65536;

struct Bf16Codes {
  std::uint16_t* codes;
  explicit Bf16Codes(float* words) : codes(reinterpret_cast<std::uint16_t*>(words)) {}

  void decode(std::span<float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = bf16_to_float(codes[i]);
  }
  void encode(std::span<const float> values, std::span<const std::uint16_t> random) const {
    for (std::size_t i = 0; i < values.size(); ++i) codes[i] = bf16_at_random(values[i], random[i]);
  }
  void encode_nearest(std::span<const float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) codes[i] = float_to_bf16(values[i]);
  }
};

/// t in [0, levels^power] lies between q^power and (q + 1)^power; rounds up where `random` is below its place
/// between them.
template <int power>
int round_at_random(float t, float root, float random) {
  const float q = std::floor(root);
  const float low = power == 2 ? q * q : q * q * q * q;
  const float next = q + 1, high = power == 2 ? next * next : next * next * next * next;
  return static_cast<int>(q) + ((high - low) * random < t - low ? 1 : 0);
}

/// A scale and its block's codes.
struct FirstCodes {
  static constexpr float kLevels = 127;
  static int code(float share, float random) {  // share: of the largest, at least 0
    const float t = kLevels * kLevels * share;
    return std::min(round_at_random<2>(t, std::sqrt(t), random), 127);
  }
  static int nearest(float share) { return static_cast<int>(std::lround(kLevels * std::sqrt(share))); }
  static float value(std::int8_t code, float scale) {
    const float root = static_cast<float>(code) / kLevels;
    return scale * root * std::abs(root);
  }
  static std::int8_t with_sign(int code, float value) {
    return static_cast<std::int8_t>(value < 0 ? -code : code);
  }
  using Code = std::int8_t;
};

struct SecondCodes {
  static constexpr float kLevels = 255;
  static int code(float share, float random) {
    const float t = kLevels * kLevels * kLevels * kLevels * share;
    return at_least_one(std::min(round_at_random<4>(t, std::sqrt(std::sqrt(t)), random), 255), share);
  }
  static int nearest(float share) {
    return at_least_one(static_cast<int>(std::lround(kLevels * std::sqrt(std::sqrt(share)))), share);
  }
  static float value(std::uint8_t code, float scale) {
    const float root = static_cast<float>(code) / kLevels, square = root * root;
    return scale * (square * square);
  }
  static std::uint8_t with_sign(int code, float /*value*/) { return static_cast<std::uint8_t>(code); }
  using Code = std::uint8_t;

 private:
  static int at_least_one(int code, float share) { return share > 0 ? std::max(code, 1) : code; }
};

/// Sizes of floats are ordered as their bits are, and a maximum of integers is vectorised.
float largest_of(std::span<const float> values) {
  std::uint32_t largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

template <typename Kind>
struct Int8Block {
  float* scale;
  typename Kind::Code* codes;
  explicit Int8Block(float* words) : scale(words), codes(reinterpret_cast<typename Kind::Code*>(words + 1)) {}

  void decode(std::span<float> values) const {
    const float here = *scale;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = Kind::value(codes[i], here);
  }
  /// code_of(share, i) -> the size of a code.
  template <typename CodeOf>
  void encode(std::span<const float> values, CodeOf code_of) const {
    const float largest = largest_of(values);
    const bool is_zero = largest < std::numeric_limits<float>::min();  // whose inverse would be infinite
    const float inverse = is_zero ? 0.0f : 1 / largest;
    const float* const from = values.data();
    typename Kind::Code* const to = codes;
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i)
      to[i] = Kind::with_sign(code_of(std::min(std::abs(from[i]) * inverse, 1.0f), i), from[i]);
    *scale = is_zero ? 0.0f : largest;
  }
};

/// visit(codes) with the codes of a piece.
template <typename Visit>
void visit_codes(MomentFormat format, Moment moment, float* words, Visit visit) {
  if (format == MomentFormat::kBf16) return visit(Bf16Codes(words));
  if (moment == Moment::kFirst) return visit(Int8Block<FirstCodes>(words));
  visit(Int8Block<SecondCodes>(words));
}

template <typename Kind>
void encode_at_random(const Int8Block<Kind>& block, std::span<const float> values,
                      std::span<const std::uint16_t> random) {
  // By value: a store of a code might change what a reference leads to.
  block.encode(values, [bits = random.data()](float share, std::size_t i) {
    return Kind::code(share, static_cast<float>(bits[i]) * kOneIn16Bits);
  });
}
void encode_at_random(const Bf16Codes& codes, std::span<const float> values,
                      std::span<const std::uint16_t> random) {
  codes.encode(values, random);
}

template <typename Kind>
void encode_nearest(const Int8Block<Kind>& block, std::span<const float> values) {
  block.encode(values, [](float share, std::size_t) { return Kind::nearest(share); });
}
void encode_nearest(const Bf16Codes& codes, std::span<const float> values) {
  codes.encode_nearest(values);
}

/// piece(begin, count) for each that is decoded at once.
template <typename Piece>
void for_pieces(Index size, Piece piece) {
  for (Index begin = 0; begin < size; begin += MomentView::kPiece)
    piece(begin, std::min(MomentView::kPiece, size - begin));
}

}  // namespace

MomentView MomentView::part(Index begin, Index count) const {
  require(begin % unit_of(format_).elements == 0, "a part of moments begins at a whole unit");
  return {format_, moment_, words_ + words_of(format_, begin), count};
}

std::span<const float> MomentView::read(std::vector<float>& memory) const {
  if (format_ == MomentFormat::kFp32) return {words_, at(count_)};
  memory.resize(at(count_));
  for_pieces(count_, [&](Index begin, Index count) {
    part(begin, count).decode(std::span(memory).subspan(at(begin), at(count)));
  });
  return memory;
}

void MomentView::write(std::span<const float> values) const {
  require(std::ssize(values) == count_, "moments are written all at once");
  if (format_ == MomentFormat::kFp32) {
    std::ranges::copy(values, words_);
    return;
  }
  for_pieces(count_, [&](Index begin, Index count) {
    visit_codes(format_, moment_, part(begin, count).words_,
                [&](auto codes) { encode_nearest(codes, values.subspan(at(begin), at(count))); });
  });
}

void MomentView::decode(std::span<float> values) const {
  require(format_ != MomentFormat::kFp32 && count_ <= kPiece, "a piece of codes is decoded at once");
  visit_codes(format_, moment_, words_, [&](auto codes) { codes.decode(values.first(at(count_))); });
}

void MomentView::encode(std::span<const float> values, std::span<const std::uint16_t> random) const {
  require(format_ != MomentFormat::kFp32 && count_ <= kPiece, "a piece of codes is encoded at once");
  visit_codes(format_, moment_, words_, [&](auto codes) {
    encode_at_random(codes, values.first(at(count_)), random.first(at(count_)));
  });
}

RandomPiece::RandomPiece(std::uint64_t seed, Index piece_begin) {
  const std::uint64_t bits = CounterRandom(seed, 0).bits(static_cast<std::uint64_t>(piece_begin));
  first_ = static_cast<std::uint32_t>(bits ^ (bits >> 32));
}

void fill_random(std::uint64_t seed, Index piece_begin, std::span<std::uint16_t> low,
                 std::span<std::uint16_t> high) {
  const RandomPiece random(seed, piece_begin);
  for (std::size_t i = 0; i < low.size(); ++i) {
    const std::uint32_t bits = random.bits(i);
    low[i] = static_cast<std::uint16_t>(bits);
    high[i] = static_cast<std::uint16_t>(bits >> 16);
  }
}

MomentView Moments::view(Moment moment, Index begin, Index count) {
  return MomentView(format_, moment, words(moment).data(), begin + count).part(begin, count);
}

}  // namespace moeloom
