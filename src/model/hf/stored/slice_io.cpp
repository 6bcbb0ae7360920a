#include "model/hf/stored/slice_io.hpp"

#include "model/hf/stored/stored_tensor.hpp"

#include <algorithm>

#include "hf/stored/mxfp4.hpp"

namespace moeloom {
namespace {

constexpr Index kColumnsAtOnce = 16;  // a cache line of each row is filled whole

bool has_steps(const HfSlice& slice) {
  return slice.layout == SliceLayout::kSteps || slice.layout == SliceLayout::kInterleavedSteps ||
         slice.layout == SliceLayout::kTurnedSteps;
}

/// Which of the file's rows, or of a column's elements, row r of a slice is.
Index place_in_column(const HfSlice& slice, Index r) {
  if (slice.layout != SliceLayout::kInterleaved && slice.layout != SliceLayout::kInterleavedSteps) return r;
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

void read_transposed(const StoredTensor& tensor, const HfSlice& slice, MatrixView rows) {
  Matrix columns = Matrix::uninitialised(kColumnsAtOnce, slice.rows);
  for_column_blocks(slice, rows.cols, [&](Index begin, Index count, Index place) {
    for_runs(slice, count, place, [&](Index c, Index run, Index at_place) {
      tensor.read(at_place, {columns.row(c), at(run)});
    });
    for (Index r = 0; r < slice.rows; ++r)
      for (Index c = 0; c < count; ++c) rows(r, begin + c) = columns.row(c)[place_in_column(slice, r)];
  });
}

void read_steps(const StoredTensor& tensor, const HfSlice& slice, MatrixView rows) {
  for (Index i = 0; i < rows.size(); ++i) tensor.read(place_in_file(slice, rows.cols, i), {rows.data + i, 1});
}

void read_from(const StoredTensor& tensor, const HfSlice& slice, MatrixView rows) {
  if (slice.layout == SliceLayout::kRows) return tensor.read(slice.source_begin, rows.flat());
  if (has_steps(slice)) return read_steps(tensor, slice, rows);
  read_transposed(tensor, slice, rows);
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
  if (slice.layout == SliceLayout::kTurnedSteps)
    return slice.source_begin + i / cols * slice.column_step + i % cols * slice.shape.back();
  if (has_steps(slice))
    return slice.source_begin + place_in_column(slice, i / cols) * slice.shape.back() +
           i % cols * slice.column_step;
  return slice.source_begin + i % cols * slice.shape.back() + place_in_column(slice, i / cols);
}

void read_slice(const SafetensorsFolder& folder, const StoredForm& form, const HfSlice& slice,
                MatrixView rows) {
  if (is_in_mxfp4(folder, slice.name)) return read_mxfp4(folder, slice, rows);
  read_from(StoredTensor(folder, form, slice.name), slice, rows);
}

void read_slice(const SafetensorsFile& file, const HfSlice& slice, MatrixView rows) {
  read_from(StoredTensor(file, slice.name), slice, rows);
}

void write_slice(ShardWriter& writer, const HfSlice& slice, ConstMatrixView rows) {
  if (slice.layout == SliceLayout::kRows) return writer.write(slice.name, slice.source_begin, rows.flat());
  if (has_steps(slice)) {
    const HfSlice* const one = &slice;
    return write_slices(writer, std::span(&one, 1), std::span(&rows, 1));
  }
  write_transposed(writer, slice, rows);
}

bool alternates_with(const HfSlice& slice, const HfSlice& before) {
  return has_steps(slice) && slice.layout == before.layout && slice.name == before.name &&
         slice.rows == before.rows && slice.source_begin == before.source_begin + 1;
}

void write_slices(ShardWriter& writer, std::span<const HfSlice* const> slices,
                  std::span<const ConstMatrixView> rows) {
  const HfSlice& first = *slices.front();
  const Index cols = rows.front().cols, count = std::ssize(slices);
  // Where these are all that alternate, a whole row of the file is one run.
  const bool is_turned = first.layout == SliceLayout::kTurnedSteps;
  const Index at_once = count == first.column_step && !is_turned ? cols : 1;
  std::vector<float> run(at(at_once * count));
  for (Index i = 0; i < first.rows; ++i)
    for (Index j = 0; j < cols; j += at_once) {
      for (Index c = 0; c < at_once; ++c)
        for (Index s = 0; s < count; ++s) run[at(c * count + s)] = rows[at(s)](i, j + c);
      writer.write(first.name, place_in_file(first, cols, i * cols + j), run);
    }
}

std::string slice_violation(const HfSlice& slice, Index cols) {
  const bool alternates =
      slice.layout == SliceLayout::kInterleaved || slice.layout == SliceLayout::kInterleavedSteps;
  if (alternates && slice.rows % 2 != 0)
    return "slice of " + slice.name + ": " + std::to_string(slice.rows) + " rows have no two halves";
  if (has_steps(slice)) {
    const Index steps = slice.layout == SliceLayout::kTurnedSteps ? slice.rows : cols;
    if (slice.shape.empty() || slice.source_begin < 0 || slice.column_step * steps > slice.shape.back() ||
        slice.source_begin % slice.shape.back() >= slice.column_step)
      return "slice of " + slice.name + ": " + std::to_string(steps) + " elements in steps of " +
             std::to_string(slice.column_step) + " do not fit into a row of the tensor";
  } else if (slice.layout != SliceLayout::kRows && (slice.shape.empty() || slice.shape.back() < slice.rows))
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
