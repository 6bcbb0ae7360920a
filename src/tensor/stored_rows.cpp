#include "moeloom/tensor/stored_rows.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

StoredRows StoredRows::rows_from(Index first, Index count) const {
  StoredRows part = elements(first * cols_, count * cols_);
  part.rows_ = count;
  part.cols_ = cols_;
  return part;
}

StoredRows StoredRows::elements(Index begin, Index count) const {
  StoredRows part = *this;
  part.rows_ = 1;
  part.cols_ = count;
  if (values_ != nullptr) part.values_ += begin;
  if (high_ != nullptr) part.high_ += begin;
  if (low_ != nullptr) part.low_ += begin;
  return part;
}

ConstMatrixView StoredRows::read(Matrix& memory) const {
  if (storage_ == Storage::kFp32) return {values_, rows_, cols_};
  memory.reshape_uninitialised(rows_, cols_);
  float* const values = memory.view().data;
  if (storage_ == Storage::kBf16) {
    std::transform(high_, high_ + size(), values, bf16_to_float);
  } else if (storage_ == Storage::kF16) {
    std::transform(high_, high_ + size(), values, f16_to_float);
  } else {
    std::transform(high_, high_ + size(), low_, values, joined);
  }
  return memory;
}

void StoredRows::write(std::span<const float> values) const {
  require(std::ssize(values) == size(), "stored rows are written all at once");
  switch (storage_) {
    case Storage::kFp32:
      std::ranges::copy(values, values_);
      return;
    case Storage::kBf16:
      std::ranges::transform(values, high_, float_to_bf16);
      return;
    case Storage::kF16:
      std::ranges::transform(values, high_, float_to_f16);
      return;
    case Storage::kSplit:
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Halves halves = split(values[i]);
        high_[i] = halves.high;
        low_[i] = halves.low;
      }
  }
}

std::array<std::span<std::byte>, 2> StoredRows::bytes() const {
  if (storage_ == Storage::kFp32) return {std::as_writable_bytes(std::span(values_, at(size()))), {}};
  const auto high = std::as_writable_bytes(std::span(high_, at(size())));
  if (is_half(storage_)) return {high, {}};
  return {high, std::as_writable_bytes(std::span(low_, at(size())))};
}

StoredRows StoredRows::copy_in(float* memory) const {
  StoredRows copy = *this;
  const auto halves = reinterpret_cast<std::uint16_t*>(memory);
  if (storage_ == Storage::kFp32) copy.values_ = memory;
  if (high_ != nullptr) copy.high_ = halves;
  if (low_ != nullptr) copy.low_ = halves + size();
  return copy;
}

}  // namespace moeloom
