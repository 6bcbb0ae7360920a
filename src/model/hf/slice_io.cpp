#include "moeloom/model/hf/slice_io.hpp"

#include <algorithm>

#include "hf/mxfp4.hpp"

namespace moeloom {
namespace {

constexpr Index kColumnsAtOnce = 16;  // a cache line of each row is filled whole

/// Where row r of a slice stands in a column of the file.
Index place_in_column(const HfSlice& slice, Index r) {
  if (slice.layout != SliceLayout::kInterleaved) return r;
  const Index half = slice.rows / 2;
  return r < half ? 2 * r : 2 * (r - half) + 1;
}

Index elements_of(const std::vector<Index>& shape) {
  Index count = 1;
  for (const Index size : shape) count *= size;
  return count;
}

/// use(begin, count, place): columns [begin, begin + count), and where the first lies in the file.
template <typename Use>
void for_column_blocks(const HfSlice& slice, Index cols, const Use& use) {
  for (Index begin = 0; begin < cols; begin += kColumnsAtOnce)
    use(begin, std::min(kColumnsAtOnce, cols - begin), slice.source_begin + begin * slice.shape.back());
}

/// use(c, run, place) for stretches of the file that hold `count` columns of `rows` elements, laid one behind
/// the other in memory: one where the columns touch in the file, too.
template <typename Use>
void for_runs(const HfSlice& slice, Index count, Index place, const Use& use) {
  const Index stride = slice.shape.back();
  if (slice.rows == stride) return use(0, count * slice.rows, place);
  for (Index c = 0; c < count; ++c) use(c, slice.rows, place + c * stride);
}

void read_transposed(const SafetensorsFile& file, const HfSlice& slice, MatrixView rows) {
  Matrix columns = Matrix::uninitialised(kColumnsAtOnce, slice.rows);
  for_column_blocks(slice, rows.cols, [&](Index begin, Index count, Index place) {
    for_runs(slice, count, place, [&](Index c, Index run, Index at_place) {
      file.read(slice.name, at_place, {columns.row(c), at(run)});
    });
    for (Index r = 0; r < slice.rows; ++r)
      for (Index c = 0; c < count; ++c) rows(r, begin + c) = columns.row(c)[place_in_column(slice, r)];
  });
}

void write_transposed(ShardWriter& writer, const HfSlice& slice, ConstMatrixView rows) {
  Matrix columns = Matrix::uninitialised(kColumnsAtOnce, slice.rows);
  for_column_blocks(slice, rows.cols, [&](Index begin, Index count, Index place) {
    for (Index c = 0; c < count; ++c)
      for (Index r = 0; r < slice.rows; ++r) columns.row(c)[place_in_column(slice, r)] = rows(r, begin + c);
    for_runs(slice, count, place, [&](Index c, Index run, Index at_place) {
      writer.write(slice.name, at_place, {columns.row(c), at(run)});
    });
  });
}

/// One behind the last element in the file.
Index source_end(const HfSlice& slice, Index cols) {
  return slice.rows * cols == 0 ? slice.source_begin : place_in_file(slice, cols, slice.rows * cols - 1) + 1;
}

}  // namespace

Index place_in_file(const HfSlice& slice, Index cols, Index i) {
  if (slice.layout == SliceLayout::kRows) return slice.source_begin + i;
  return slice.source_begin + i % cols * slice.shape.back() + place_in_column(slice, i / cols);
}

void read_slice(const SafetensorsFolder& folder, const HfSlice& slice, MatrixView rows) {
  if (is_in_mxfp4(folder, slice.name)) return read_mxfp4(folder, slice, rows);
  if (slice.layout == SliceLayout::kRows) return folder.read(slice.name, slice.source_begin, rows.flat());
  read_transposed(folder.file_of(slice.name), slice, rows);
}

void write_slice(ShardWriter& writer, const HfSlice& slice, ConstMatrixView rows) {
  if (slice.layout == SliceLayout::kRows) return writer.write(slice.name, slice.source_begin, rows.flat());
  write_transposed(writer, slice, rows);
}

std::string slice_violation(const HfSlice& slice, Index cols) {
  if (slice.layout == SliceLayout::kInterleaved && slice.rows % 2 != 0)
    return "slice of " + slice.name + ": " + std::to_string(slice.rows) + " rows have no two halves";
  if (slice.layout != SliceLayout::kRows && (slice.shape.empty() || slice.shape.back() < slice.rows))
    return "slice of " + slice.name + ": a column of " + std::to_string(slice.rows) +
           " elements does not fit between two columns of the tensor";
  const Index all = elements_of(slice.shape);
  if (slice.source_begin >= 0 && source_end(slice, cols) <= all) return "";
  return "slice of " + slice.name + ": elements " + std::to_string(slice.source_begin) + " to " +
         std::to_string(source_end(slice, cols)) + " lie outside the tensor's " + std::to_string(all);
}

std::string slice_key(const HfSlice& slice, Index cols) {
  if (slice.rows * cols == elements_of(slice.shape)) return slice.name;
  return slice.name + "@" + std::to_string(slice.source_begin);
}

}  // namespace moeloom
