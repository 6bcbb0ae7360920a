// What a caller's array is: its shape, where its rows lie, and the integers in it.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/c/moeloom.h"
#include "moeloom/tensor/gemm.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

namespace moeloom::c {

/// In place of a size: any.
inline constexpr Index kAny = -1;

/// Throws ShapeError unless the array is there and may be read, Refusal for an unknown dtype. -> the array.
const ml_array& check_array(const ml_array* array, const char* name);
/// The same where it has not this shape.
const ml_array& check_array(const ml_array* array, const char* name, std::span<const Index> shape);
inline const ml_array& check_array(const ml_array* array, const char* name,
                                   std::initializer_list<Index> shape) {
  return check_array(array, name, std::span(shape.begin(), shape.size()));
}
inline std::span<const Index> shape_of(const ml_array& array) {
  return {array.shape, at(array.ndim)};
}
/// Throws ShapeError where two elements may lie in one place, as of an array that is written: threads write
/// its rows in any order.
void check_apart(const ml_array& array, const char* name);
/// What is wrong with a dtype, as an exception.
[[noreturn]] void refuse_type(const ml_array& array, const char* name, const char* expected);

/// Columns: the last dimension, and rows: all others together; one of a single dimension is a row.
Index cols_of(const ml_array& array);
Index rows_of(const ml_array& array);
/// From a row to the next, if there is one such distance.
std::optional<Index> row_stride(const ml_array& array);
/// Where a row begins, not checked.
std::byte* row_at(const ml_array& array, Index row);
/// Of one number.
Index bytes_of_element(const ml_array& array);
/// Whether the address is a multiple of an element's size.
bool is_aligned(const ml_array& array);
/// Element g of the first dimension, not checked; of one dimension less.
ml_array part_of(const ml_array& array, Index g);

/// All elements in order, of ML_I64 or ML_I32.
std::vector<Index> integers_of(const ml_array& array, const char* name);
void write_integers(std::span<const Index> values, const ml_array& array, const char* name);
/// topk_idx [T, K] as the rooms have it: kNoExpert for -1 and num_experts. Throws ShapeError for ids outside.
std::vector<std::int32_t> chosen_of(const ml_array& topk_idx, Index num_experts);

/// ML_REPLACE or ML_ADD.
Write write_of(std::int32_t mode);

}  // namespace moeloom::c
