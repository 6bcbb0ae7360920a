#include "model/hf/stored/slice_io.hpp"

#include "moeloom/base/errors.hpp"

#include <functional>
#include <numeric>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 3;

/// One way in which a checkpoint keeps a parameter of kExperts x [rows, cols], and where its element lies.
struct SliceCase {
  std::string text;
  Index rows;  // of an expert
  Index cols;
  std::vector<HfSlice> slices;
  std::function<Index(Index expert, Index row, Index col)> place;
};

HfSlice slice_of(Index row_begin, Index rows, std::vector<Index> shape, Index begin, SliceLayout layout) {
  return {"w", row_begin, rows, std::move(shape), begin, layout};
}

/// [E, 2F, D] as transformers 5 stacks them.
SliceCase stacked_rows(Index f, Index d) {
  SliceCase c{
      "stacked rows", 2 * f, d, {}, [=](Index e, Index r, Index j) { return (e * 2 * f + r) * d + j; }};
  for (Index e = 0; e < kExperts; ++e)
    c.slices.push_back(slice_of(e * 2 * f, 2 * f, {kExperts, 2 * f, d}, e * 2 * f * d, SliceLayout::kRows));
  return c;
}

/// [E, D, 2F]: gate and up side by side in the columns, as one slice or as two.
SliceCase stacked_columns(Index f, Index d, bool apart) {
  SliceCase c{
      "stacked columns", 2 * f, d, {}, [=](Index e, Index r, Index j) { return (e * d + j) * 2 * f + r; }};
  for (Index e = 0; e < kExperts; ++e)
    for (Index part = 0; part < (apart ? 2 : 1); ++part) {
      const Index rows = apart ? f : 2 * f;
      c.slices.push_back(slice_of(e * 2 * f + part * f, rows, {kExperts, d, 2 * f}, e * 2 * f * d + part * f,
                                  SliceLayout::kTransposed));
    }
  return c;
}

/// [E, D, 2F] with gate and up in turn; cols = 1 is their bias [E, 2F].
SliceCase interleaved_columns(Index f, Index d) {
  SliceCase c{"interleaved columns", 2 * f, d, {}, [=](Index e, Index r, Index j) {
                return (e * d + j) * 2 * f + (r < f ? 2 * r : 2 * (r - f) + 1);
              }};
  for (Index e = 0; e < kExperts; ++e)
    c.slices.push_back(
        slice_of(e * 2 * f, 2 * f,
                 d == 1 ? std::vector<Index>{kExperts, 2 * f} : std::vector<Index>{kExperts, d, 2 * f},
                 e * 2 * f * d, SliceLayout::kInterleaved));
  return c;
}

/// [D, 2F E]: of each expert every E-th element of a row of the file is a row of the parameter.
SliceCase turned_steps(Index f, Index d) {
  SliceCase c{"turned steps", 2 * f, d, {}, [=](Index e, Index r, Index j) {
                return (j * 2 * f + r) * kExperts + e;
              }};
  for (Index e = 0; e < kExperts; ++e) {
    c.slices.push_back(slice_of(e * 2 * f, 2 * f, {d, 2 * f * kExperts}, e, SliceLayout::kTurnedSteps));
    c.slices.back().column_step = kExperts;
  }
  return c;
}

/// Sizes that are no multiples of a block, one row, one column, and those of which the shapes say nothing:
/// 2F = D and F = D.
std::vector<SliceCase> cases() {
  std::vector<SliceCase> all;
  for (const auto& [f, d] : std::vector<std::pair<Index, Index>>{{3, 5}, {4, 8}, {8, 8}, {1, 40}, {20, 1}}) {
    all.push_back(stacked_rows(f, d));
    all.push_back(stacked_columns(f, d, false));
    all.push_back(stacked_columns(f, d, true));
    all.push_back(interleaved_columns(f, d));
    all.push_back(turned_steps(f, d));
  }
  return all;
}

TEST(SliceIo, ReadsEveryLayoutToItsPlace) {
  for (const SliceCase& c : cases()) {
    const testing::TemporaryFolder folder;
    std::vector<float> file(static_cast<std::size_t>(kExperts * c.rows * c.cols));
    std::iota(file.begin(), file.end(), 1.0f);
    write_safetensors(folder / "model.safetensors", {{"w", DType::kF32, c.slices.front().shape}}, {file});
    const SafetensorsFolder set(folder.path());
    Matrix parameter(kExperts * c.rows, c.cols);
    for (const HfSlice& slice : c.slices)
      read_slice(set, {}, slice, parameter.view().rows_from(slice.row_begin, slice.rows));
    for (Index r = 0; r < kExperts * c.rows; ++r)
      for (Index j = 0; j < c.cols; ++j)
        ASSERT_EQ(parameter.row(r)[j], file[at(c.place(r / c.rows, r % c.rows, j))])
            << c.text << " " << c.rows << " x " << c.cols << " at " << r << "," << j;
  }
}

TEST(SliceIo, WritesWhatItReadsBitForBit) {
  for (const SliceCase& c : cases()) {
    const testing::TemporaryFolder folder;
    Matrix parameter(kExperts * c.rows, c.cols);
    std::iota(parameter.view().flat().begin(), parameter.view().flat().end(), 1.0f);
    const ShardPlan plan = plan_shards({{"w", DType::kF32, c.slices.front().shape}});
    create_shards(folder.path(), plan);
    ShardWriter writer(folder.path(), plan);
    for (const HfSlice& slice : c.slices)
      write_slice(writer, slice, parameter.view().rows_from(slice.row_begin, slice.rows));
    writer.close();
    const std::vector<float> file = SafetensorsFile(folder / "model.safetensors").floats("w");
    for (Index r = 0; r < kExperts * c.rows; ++r)
      for (Index j = 0; j < c.cols; ++j)
        ASSERT_EQ(file[at(c.place(r / c.rows, r % c.rows, j))], parameter.row(r)[j])
            << c.text << " " << c.rows << " x " << c.cols << " at " << r << "," << j;
  }
}

TEST(SliceIo, PlacesInTheFileAreThoseThatAreRead) {
  for (const SliceCase& c : cases())
    for (const HfSlice& slice : c.slices) {
      EXPECT_EQ(slice_violation(slice, c.cols), "");
      for (Index i = 0; i < slice.rows * c.cols; ++i) {
        const Index row = slice.row_begin + i / c.cols;
        ASSERT_EQ(place_in_file(slice, c.cols, i), c.place(row / c.rows, row % c.rows, i % c.cols));
      }
    }
}

TEST(SliceIo, NamesASliceThatLiesOutsideItsTensor) {
  const struct {
    HfSlice slice;
    const char* expected;
  } wrong[] = {
      {slice_of(0, 4, {2, 4, 3}, 13, SliceLayout::kRows), "elements 13 to 25 lie outside the tensor's 24"},
      {slice_of(0, 4, {2, 4, 3}, -1, SliceLayout::kRows), "lie outside"},
      {slice_of(0, 4, {2, 3, 4}, 13, SliceLayout::kTransposed), "elements 13 to 25 lie outside"},
      {slice_of(0, 5, {2, 3, 4}, 0, SliceLayout::kTransposed), "a column of 5 elements does not fit"},
      {slice_of(0, 3, {2, 3, 4}, 0, SliceLayout::kInterleaved), "3 rows have no two halves"},
  };
  for (const auto& w : wrong)
    EXPECT_NE(slice_violation(w.slice, 3).find(w.expected), std::string::npos) << slice_violation(w.slice, 3);
}

TEST(SliceIo, KeysOfAStackDiffer) {
  const SliceCase c = stacked_rows(2, 3);
  EXPECT_EQ(slice_key(c.slices[0], c.cols), "w@0");
  EXPECT_EQ(slice_key(c.slices[1], c.cols), "w@12");
  EXPECT_EQ(slice_key(slice_of(7, 2, {2, 3}, 0, SliceLayout::kRows), 3), "w");
}

}  // namespace
}  // namespace moeloom
