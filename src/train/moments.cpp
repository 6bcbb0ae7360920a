#include "train/moments.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <algorithm>
#include <array>

#include "moment_codes.hpp"

namespace moeloom {
namespace {

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

/// visit(codes) with the codes of a piece.
template <typename Visit>
void visit_codes(MomentFormat format, Moment moment, float* words, Visit visit) {
  if (format == MomentFormat::kBf16) return visit(Bf16Codes(words));
  if (moment == Moment::kFirst) return visit(Int8Block<FirstCodes>(words));
  visit(Int8Block<SecondCodes>(words));
}

/// code_of(given, factor, i) of each value.
template <typename Kind, typename CodeOf>
void encode(const Int8Block<Kind>& block, std::span<const float> values, CodeOf code_of) {
  std::array<float, at(MomentView::kPiece)> given;
  for (std::size_t i = 0; i < values.size(); ++i) given[i] = Kind::given(values[i]);
  const float factor = block.begin(std::span(given).first(values.size()));
  // By value: a store of a code might change what a reference leads to.
  typename Kind::Code* const to = block.codes;
  for (std::size_t i = 0; i < values.size(); ++i)
    to[i] = static_cast<typename Kind::Code>(code_of(given[i], factor, i));
}

template <typename Kind>
void encode_at_random(const Int8Block<Kind>& block, std::span<const float> values,
                      std::span<const std::uint16_t> random) {
  encode(block, values, [bits = random.data()](float given, float factor, std::size_t i) {
    return Kind::at_random(given, factor, fraction_of(std::uint32_t{bits[i]} << 16));
  });
}
void encode_at_random(const Bf16Codes& codes, std::span<const float> values,
                      std::span<const std::uint16_t> random) {
  codes.encode(values, random);
}

template <typename Kind>
void encode_nearest(const Int8Block<Kind>& block, std::span<const float> values) {
  encode(block, values, [](float given, float factor, std::size_t) { return Kind::nearest(given, factor); });
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

MomentView Moments::view(Moment moment, Index begin, Index count) {
  return MomentView(format_, moment, words(moment).data(), begin + count).part(begin, count);
}

}  // namespace moeloom
