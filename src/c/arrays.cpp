#include "arrays.hpp"

#include "moeloom/moe/routing/chosen_experts.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "guard.hpp"

namespace moeloom::c {
namespace {

constexpr std::array<const char*, 7> kNames = {"ML_F32", "ML_BF16", "ML_F16", "ML_I64",
                                               "ML_I32", "ML_U8",   "ML_F64"};
constexpr std::array<Index, 7> kBytes = {4, 2, 2, 8, 4, 1, 8};

std::string shape_text(std::span<const Index> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + (shape[i] == kAny ? "any" : std::to_string(shape[i]));
  return text + "]";
}

/// Rows without an element are gone through, and cost no memory to claim.
constexpr Index kMostRowsOfNothing = 1 << 24;

/// Of sizes whose product can be counted.
void check_rows_of_nothing(std::span<const Index> shape, const char* name) {
  const auto rows_end = std::ranges::find(shape, 0);
  const Index rows = std::accumulate(shape.begin(), rows_end, Index{1}, std::multiplies<>());
  check(rows <= kMostRowsOfNothing, [&] {
    return name + (" is " + shape_text(shape)) + ", which is more than " +
           std::to_string(kMostRowsOfNothing) + " rows of nothing";
  });
}

/// Whether bytes of its elements, and of the way to the last one, can be counted. A size of 0 counts as 1:
/// what has no element is gone through by its other sizes too.
bool can_be_counted(const ml_array& array) {
  constexpr Index kWidest = 8;  // bytes of an element, or of its copy
  Index bytes = kWidest, last = 0;
  bool fits = true;
  for (Index dim = 0; dim < array.ndim; ++dim) {
    const Index size = std::max<Index>(array.shape[dim], 1);
    Index way = 0;
    fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    if (size == 1) continue;
    fits = fits && !__builtin_mul_overflow((size - 1) * kWidest, array.stride[dim], &way) &&
           !__builtin_add_overflow(last, way, &last);
  }
  return fits;
}

void check_layout(const ml_array* array, const char* name) {
  const ml_array& a = given(array, name);
  check(a.ndim >= 1 && a.ndim <= ML_MAX_DIMS,
        [&] { return name + (" has " + std::to_string(a.ndim)) + " dimensions; arrays have 1 to 4"; });
  const std::span<const Index> shape = shape_of(a);
  check(std::ranges::all_of(shape, [](Index size) { return size >= 0; }),
        [&] { return name + (" is " + shape_text(shape)) + ": a size is negative"; });
  if (a.dtype < 0 || a.dtype >= std::ssize(kBytes))
    throw Refusal(ML_TYPE, name + (" has the unknown dtype " + std::to_string(a.dtype)));
  check(can_be_counted(a), [&] {
    return name + (" is " + shape_text(shape)) + ": with its strides that is more than memory can hold";
  });
  for (Index dim = 0; dim < a.ndim; ++dim)
    check(a.shape[dim] <= 1 || a.stride[dim] >= 0, [&] {
      return name + (" is " + shape_text(shape)) + " with a stride of " + std::to_string(a.stride[dim]) +
             ", and strides are not negative";
    });
  if (std::ranges::count(shape, 0) > 0) return check_rows_of_nothing(shape, name);
  check(a.data != nullptr, [&] { return name + (" is " + shape_text(shape)) + " and has no data"; });
  const Index last = a.stride[a.ndim - 1];
  check(shape.back() == 1 || last == 1, [&] {
    return name + (" is " + shape_text(shape)) + " with a last stride of " + std::to_string(last) +
           ", which must be 1: make it contiguous";
  });
}

}  // namespace

const ml_array& check_array(const ml_array* array, const char* name) {
  check_layout(array, name);
  return *array;
}

const ml_array& check_array(const ml_array* array, const char* name, std::span<const Index> shape) {
  check_layout(array, name);
  const bool fits = std::ranges::equal(
      shape_of(*array), shape, [](Index has, Index wanted) { return wanted == kAny || has == wanted; });
  check(fits,
        [&] { return name + (" is " + shape_text(shape_of(*array))) + " and must be " + shape_text(shape); });
  return *array;
}

void check_apart(const ml_array& array, const char* name) {
  std::array<std::pair<Index, Index>, ML_MAX_DIMS>
      ways{};  // stride and size, of the dimensions that lead somewhere
  Index count = 0;
  for (Index dim = 0; dim < array.ndim; ++dim) {
    if (array.shape[dim] == 0) return;
    if (array.shape[dim] > 1) ways[at(count++)] = {array.stride[dim], array.shape[dim]};
  }
  std::sort(ways.begin(), ways.begin() + count);
  Index extent = 1;
  for (const auto& [stride, size] : std::span(ways).first(at(count))) {
    check(stride >= extent, [&] {
      return name + std::string(" is written, and its strides may lead to one element in several ways");
    });
    extent += (size - 1) * stride;
  }
}

void refuse_type(const ml_array& array, const char* name, const char* expected) {
  throw Refusal(ML_TYPE, std::string(name) + " is " + kNames[at(array.dtype)] + " and must be " + expected);
}

Index bytes_of_element(const ml_array& array) {
  return kBytes[at(array.dtype)];
}

Index cols_of(const ml_array& array) {
  return array.shape[array.ndim - 1];
}

Index rows_of(const ml_array& array) {
  Index rows = 1;
  for (Index dim = 0; dim + 1 < array.ndim; ++dim) rows *= array.shape[dim];
  return rows;
}

std::optional<Index> row_stride(const ml_array& array) {
  if (rows_of(array) * cols_of(array) == 0) return cols_of(array);  // from NULL there is no distance
  std::optional<Index> stride;
  Index next = 0;  // what one more of the dimension before would be
  for (Index dim = array.ndim - 2; dim >= 0; --dim) {
    if (array.shape[dim] <= 1) continue;  // one row, or none, is at any distance
    if (!stride)
      stride = array.stride[dim];
    else if (array.stride[dim] != next)
      return std::nullopt;
    next = array.stride[dim] * array.shape[dim];
  }
  return stride ? stride : cols_of(array);
}

std::byte* row_at(const ml_array& array, Index row) {
  if (array.data == nullptr) return nullptr;  // without an element
  Index offset = 0;
  for (Index dim = array.ndim - 2; dim >= 0; row /= array.shape[dim], --dim)
    offset += row % array.shape[dim] * array.stride[dim];
  return static_cast<std::byte*>(array.data) + offset * bytes_of_element(array);
}

bool is_aligned(const ml_array& array) {
  return reinterpret_cast<std::uintptr_t>(array.data) % at(bytes_of_element(array)) == 0;
}

ml_array part_of(const ml_array& array, Index g) {
  ml_array part = array;
  if (array.data != nullptr)  // without an element
    part.data = static_cast<std::byte*>(array.data) + g * array.stride[0] * bytes_of_element(array);
  part.ndim = array.ndim - 1;
  std::copy_n(array.shape + 1, part.ndim, part.shape);
  std::copy_n(array.stride + 1, part.ndim, part.stride);
  return part;
}

namespace {

void check_integers(const ml_array& array, const char* name) {
  check_layout(&array, name);
  if (array.dtype != ML_I64 && array.dtype != ML_I32) refuse_type(array, name, "ML_I64 or ML_I32");
}

template <typename Integer>
void read_integers(const ml_array& array, std::vector<Index>& values) {
  for (Index i = 0, n = 0; i < rows_of(array); ++i) {
    const std::byte* from = row_at(array, i);
    for (Index j = 0; j < cols_of(array); ++j, from += sizeof(Integer)) {
      Integer integer;
      std::memcpy(&integer, from, sizeof(integer));
      values[at(n++)] = integer;
    }
  }
}

template <typename Integer>
void write_all(std::span<const Index> values, const ml_array& array) {
  for (Index i = 0, n = 0; n < std::ssize(values); ++i) {
    std::byte* to = row_at(array, i);
    for (Index j = 0; j < cols_of(array) && n < std::ssize(values); ++j, to += sizeof(Integer)) {
      const auto integer = static_cast<Integer>(values[at(n++)]);
      std::memcpy(to, &integer, sizeof(integer));
    }
  }
}

}  // namespace

std::vector<Index> integers_of(const ml_array& array, const char* name) {
  check_integers(array, name);
  std::vector<Index> values(at(rows_of(array) * cols_of(array)));
  array.dtype == ML_I64 ? read_integers<Index>(array, values) : read_integers<std::int32_t>(array, values);
  return values;
}

void write_integers(std::span<const Index> values, const ml_array& array, const char* name) {
  check_integers(array, name);
  check(std::ssize(values) <= rows_of(array) * cols_of(array),
        [&] { return name + (" has no room for " + std::to_string(values.size())) + " numbers"; });
  array.dtype == ML_I64 ? write_all<Index>(values, array) : write_all<std::int32_t>(values, array);
}

std::vector<std::int32_t> chosen_of(const ml_array& topk_idx, Index num_experts) {
  const std::vector<Index> ids = integers_of(topk_idx, "topk_idx");
  std::vector<std::int32_t> chosen(ids.size());
  check(num_experts <= std::numeric_limits<std::int32_t>::max(),
        [] { return "there are 2^31 experts or more"; });
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    check(ids[slot] >= -1 && ids[slot] <= num_experts, [&] {
      const std::string end = std::to_string(num_experts);
      return "topk_idx has expert " + std::to_string(ids[slot]) + "; experts go from 0 to " +
             std::to_string(num_experts - 1) + ", and -1 or " + end + " stand for none";
    });
    chosen[slot] = ids[slot] == num_experts ? kNoExpert : static_cast<std::int32_t>(ids[slot]);
  }
  return chosen;
}

Write write_of(std::int32_t mode) {
  check(mode == ML_REPLACE || mode == ML_ADD, [] { return "a mode is ML_REPLACE or ML_ADD"; });
  return mode == ML_ADD ? Write::kAdd : Write::kReplace;
}

}  // namespace moeloom::c
