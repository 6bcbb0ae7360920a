// Weights as they are kept: floats, floats in two halves, bf16, or F16. Views: what they show must outlive
// them. No collective.
//
// kSplit: the bf16 nearest to a float, which products read at half the traffic, and beside it the 16 bits
// that make it that float again, which only its update and a checkpoint read. The bits of the float are high
// * 2^16 + low, low as a signed number; a tie goes away from zero, where bf16 otherwise goes to even, because
// two floats would have one pair of halves.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace moeloom {

/// kFp32: a float; kSplit: a float in two halves; kBf16, kF16: 16 bits and nothing else. kF16 is for what is
/// never updated.
enum class Storage { kFp32, kSplit, kBf16, kF16 };

/// Those of weights that are trained.
inline constexpr std::array kStorages = {Storage::kFp32, Storage::kSplit, Storage::kBf16};

/// "fp32", "split", "bf16", "f16".
constexpr std::string_view name_of(Storage storage) {
  constexpr std::array<std::string_view, 4> names = {"fp32", "split", "bf16", "f16"};
  return names[static_cast<std::size_t>(storage)];
}
/// Whether a number is 16 bits and nothing else; of kSplit it is not.
constexpr bool is_half(Storage storage) {
  return storage == Storage::kBf16 || storage == Storage::kF16;
}
/// Of one number, both halves counted.
constexpr Index bytes_of(Storage storage) {
  return is_half(storage) ? 2 : 4;
}

/// The two halves of a float in kSplit.
struct Halves {
  std::uint16_t high = 0, low = 0;
};

/// An infinity keeps its sign, a NaN stays a NaN; every other float comes back from joined() bit for bit.
inline Halves split(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const bool is_finite = (all & 0x7f800000u) != 0x7f800000u;
  const std::uint32_t not_finite = (all & 0xffff0000u) | (value != value ? 0x400000u : 0u);
  const std::uint32_t bits = is_finite ? all : not_finite;
  return {static_cast<std::uint16_t>((bits + 0x8000u) >> 16), static_cast<std::uint16_t>(bits)};
}
/// The float of two halves.
inline float joined(std::uint16_t high, std::uint16_t low) {
  const auto lower = static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int16_t>(low)));
  return std::bit_cast<float>((static_cast<std::uint32_t>(high) << 16) + lower);
}

/// Rows [rows, cols] that lie one behind the other, without gaps, in memory of someone else. Passed by value.
class StoredRows {
 public:
  StoredRows(MatrixView values)  // NOLINT: floats are rows as they are
      : storage_(Storage::kFp32), rows_(values.rows), cols_(values.cols), values_(values.data) {}
  /// kSplit where there is a `low`, [rows, cols] as `high`; null: kBf16 or kF16, by high.type.
  StoredRows(HalfView high, std::uint16_t* low)
      : storage_(low != nullptr             ? Storage::kSplit
                 : high.type == DType::kF16 ? Storage::kF16
                                            : Storage::kBf16),
        rows_(high.rows),
        cols_(high.cols),
        high_(high.data),
        low_(low) {}

  Storage storage() const { return storage_; }
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index size() const { return rows_ * cols_; }
  /// Where the numbers lie: values() of kFp32, high() of the others, low() of kSplit; else null.
  float* values() const { return values_; }
  std::uint16_t* high() const { return high_; }
  std::uint16_t* low() const { return low_; }

  /// Rows [first, first + count), not checked.
  StoredRows rows_from(Index first, Index count) const;
  /// Elements [begin, begin + count) as one row, not checked.
  StoredRows elements(Index begin, Index count) const;
  /// [rows, cols] as floats: where they lie (kFp32), or made in `memory`, which must then live as long as the
  /// view that is returned.
  ConstMatrixView read(Matrix& memory) const;
  /// values [size()] in order (another length: ShapeError); kBf16 and kF16 round to nearest, ties to even.
  void write(std::span<const float> values) const;

  /// The memory: floats or upper halves, and the lower halves of kSplit (else empty).
  std::array<std::span<std::byte>, 2> bytes() const;
  /// Floats that copy_in() takes in memory.
  Index words() const { return ceil_div(size() * bytes_of(storage_), Index{sizeof(float)}); }
  /// Rows of the same shape and storage in memory [words()]. The numbers are not copied: bytes() has them.
  StoredRows copy_in(float* memory) const;

 private:
  Storage storage_;
  Index rows_, cols_;
  float* values_ = nullptr;
  std::uint16_t* high_ = nullptr;
  std::uint16_t* low_ = nullptr;
};

}  // namespace moeloom
