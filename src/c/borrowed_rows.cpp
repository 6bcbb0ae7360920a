#include "borrowed_rows.hpp"

#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "guard.hpp"

namespace moeloom::c {
namespace {

template <typename Bits>
void widen(const std::byte* from, Index count, float* to) {
  for (Index j = 0; j < count; ++j) {
    Bits bits;
    std::memcpy(&bits, from + j * Index{sizeof(Bits)}, sizeof(Bits));
    to[j] = as_float(bits);
  }
}

template <typename Bits>
void narrow(const float* from, Index count, std::byte* to) {
  for (Index j = 0; j < count; ++j) {
    Bits bits;
    if constexpr (std::is_same_v<Bits, F16>)
      bits = {float_to_f16(from[j])};
    else
      set(bits, from[j]);
    std::memcpy(to + j * Index{sizeof(Bits)}, &bits, sizeof(Bits));
  }
}

/// do_row(floats of a row, the row's bytes, columns) by the format.
template <typename View, typename DoRow>
void for_each_row(const ml_array& array, View floats, DoRow do_row) {
  if (floats.size() == 0) return;  // and neither may have memory
  const Index rows_each = std::max<Index>(1, 16384 / std::max<Index>(1, floats.cols));
  parallel_blocks(floats.rows, rows_each, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) do_row(floats.row(i), row_at(array, i), floats.cols);
  });
}

void load_rows(const ml_array& array, MatrixView target) {
  for_each_row(array, target, [&](float* to, const std::byte* from, Index count) {
    if (array.dtype == ML_F32) std::memcpy(to, from, at(count) * sizeof(float));
    if (array.dtype == ML_BF16) widen<std::uint16_t>(from, count, to);
    if (array.dtype == ML_F16) widen<F16>(from, count, to);
  });
}

void store_rows(ConstMatrixView source, const ml_array& array) {
  for_each_row(array, source, [&](const float* from, std::byte* to, Index count) {
    if (array.dtype == ML_F32) std::memcpy(to, from, at(count) * sizeof(float));
    if (array.dtype == ML_BF16) narrow<std::uint16_t>(from, count, to);
    if (array.dtype == ML_F16) narrow<F16>(from, count, to);
  });
}

bool may_lie(const ml_array& array, InPlace in_place) {
  const std::optional<Index> stride = row_stride(array);
  if (!stride || *stride < 0 || !is_aligned(array)) return false;
  const bool gapless = *stride == cols_of(array) || rows_of(array) <= 1;
  if (array.dtype == ML_F32) return in_place != InPlace::kFlat || gapless;
  if (array.dtype == ML_BF16) return in_place == InPlace::kBf16 || in_place == InPlace::kHalves;
  return in_place == InPlace::kHalves;
}

template <typename Bits>
BasicView<Bits> view_of(const ml_array& array) {
  return {static_cast<Bits*>(array.data), rows_of(array), cols_of(array), *row_stride(array)};
}

std::vector<Matrix>& kept_floats() {
  static thread_local std::vector<Matrix> kept;
  return kept;
}

}  // namespace

void check_floats(const ml_array& array, const char* name) {
  if (array.dtype > ML_F16) refuse_type(array, name, "ML_F32, ML_BF16 or ML_F16");
}

void check_written(const ml_array& array, const char* name) {
  check_floats(array, name);
  check_apart(array, name);
}

KeptFloats::KeptFloats(Index rows, Index cols) {
  std::vector<Matrix>& kept = kept_floats();
  const auto fits = std::ranges::find_if(kept, [&](const Matrix& m) { return m.capacity() >= rows * cols; });
  const auto taken = fits == kept.end() && !kept.empty() ? kept.end() - 1 : fits;
  if (taken != kept.end()) {
    memory_ = std::move(*taken);
    kept.erase(taken);
  }
  memory_.reshape_uninitialised(rows, cols);
}

KeptFloats::KeptFloats(KeptFloats&& other) noexcept : memory_(std::exchange(other.memory_, Matrix())) {}

KeptFloats::~KeptFloats() {
  if (memory_.capacity() > 0) kept_floats().push_back(std::move(memory_));
}

void release_kept_floats() {
  kept_floats().clear();
}

RowsIn::RowsIn(const ml_array& array, const char* name, InPlace in_place) {
  check_array(&array, name);
  check_floats(array, name);
  if (!may_lie(array, in_place)) {
    load_rows(array, copy_.emplace(rows_of(array), cols_of(array)).view());
    rows_ = copy_->view();
  } else if (array.dtype == ML_F32) {
    rows_ = view_of<const float>(array);
  } else if (array.dtype == ML_BF16) {
    rows_ = view_of<const std::uint16_t>(array);
  } else {
    rows_ = view_of<const F16>(array);
  }
}

RowsOut::RowsOut(const ml_array& array, const char* name, InPlace in_place, Write mode) : array_(array) {
  check_array(&array, name);
  check_written(array, name);
  if (!may_lie(array, in_place)) {
    rows_ = copy_.emplace(rows_of(array), cols_of(array)).view();
    if (mode == Write::kAdd) load_rows(array, copy_->view());
  } else if (array.dtype == ML_F32) {
    rows_ = view_of<float>(array);
  } else {
    rows_ = view_of<std::uint16_t>(array);
  }
}

void RowsOut::store() const {
  if (copy_) store_rows(fp32(), array_);
}

void load(const ml_array& array, MatrixView target) {
  check_floats(array, "an array");
  load_rows(array, target);
}

void write_floats(ConstMatrixView values, const ml_array& array, const char* name) {
  check_written(array, name);
  store_rows(values, array);
}

}  // namespace moeloom::c
