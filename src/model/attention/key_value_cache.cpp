#include "model/attention/key_value_cache.hpp"

#include "kernels/tile/block_product.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

using block::kPanelColumns;

/// Positions between two moves of a window: a move costs what attention reads in one step.
constexpr Index kRoom = 64;

Matrix moved(const Matrix& from, Index skipped, Index kept, Index rows) {
  Matrix to = Matrix::uninitialised(rows, from.cols());
  copy(from.view().rows_from(skipped, kept), to.view().rows_from(0, kept));
  return to;
}

/// Towards the beginning, row by row, where the two overlap.
void move_rows(Matrix& m, Index skipped, Index kept) {
  const float* from = m.row(skipped);
  std::copy(from, from + kept * m.cols(), m.row(0));
}

}  // namespace

KeyValueCache::KeyValueCache(Index capacity, Index window, Index key_width, Index value_width)
    : capacity_(capacity), window_(window) {
  key_ = Matrix::uninitialised(usual_rows(), key_width);
  value_ = Matrix::uninitialised(usual_rows(), value_width);
}

Index KeyValueCache::bytes() const {
  return (key_.view().size() + value_.view().size()) * static_cast<Index>(sizeof(float));
}

Index KeyValueCache::usual_rows() const {
  return window_ == 0 ? capacity_ : std::min(capacity_, window_ + kPanelColumns + kRoom);
}

Index KeyValueCache::first_seen(Index position) const {
  if (window_ == 0) return 0;
  return std::max<Index>(0, position + 1 - window_) / kPanelColumns * kPanelColumns;
}

bool KeyValueCache::serves(Index length) const {
  return length == 0 || (length <= end_ && first_seen(length) >= begin_);
}

void KeyValueCache::move_to(Index begin, Index rows) {
  const Index skipped = begin - begin_;
  const Index kept = end_ - begin;
  if (rows == key_.rows()) {
    move_rows(key_, skipped, kept);
    move_rows(value_, skipped, kept);
  } else {
    key_ = moved(key_, skipped, kept, rows);
    value_ = moved(value_, skipped, kept, rows);
  }
  begin_ = begin;
}

void KeyValueCache::restart(Index length, Index capacity) {
  require(length <= capacity, "a sequence of that capacity does not begin with so many positions");
  require(serves(length), "the key-value cache has dropped what the sequence sees");
  capacity_ = capacity;
  end_ = length;
  if (length == 0) begin_ = 0;
  if (usual_rows() != key_.rows()) move_to(first_seen(length), usual_rows());
}

void KeyValueCache::append(Index first, ConstMatrixView key, ConstMatrixView value) {
  require(first + key.rows <= capacity_, "the key-value cache is full");
  require(serves(first), "the key-value cache has dropped what the queries see");
  end_ = first;
  if (first == 0) begin_ = 0;
  if (first + key.rows - begin_ > key_.rows()) {
    const Index begin = first_seen(first);
    move_to(begin, std::max(usual_rows(), first + key.rows - begin));
  }
  copy(key, key_.view().rows_from(first - begin_, key.rows));
  copy(value, value_.view().rows_from(first - begin_, value.rows));
  end_ = first + key.rows;
}

void KeyValueCache::drop_unseen() {
  if (key_.rows() != usual_rows()) move_to(first_seen(end_), usual_rows());
}

}  // namespace moeloom
