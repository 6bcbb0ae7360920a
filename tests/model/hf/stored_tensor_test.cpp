#include "model/hf/stored/stored_tensor.hpp"

#include "model/hf/stored/slice_io.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>
#include <utility>

#include "hf/fp8_files.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::stored_tensor_test {
namespace {

using testing::fp8_number;
using testing::scale_number;
using testing::StoredPart;
using Shape = std::vector<Index>;

constexpr DType kE4m3 = DType::kF8E4M3;
const StoredForm kBlocks{.as = StoredAs::kFp8, .block = {2, 3}};

/// "w" of this shape beside "w_scale_inv" of that one.
void write_pair(const std::filesystem::path& folder, const Shape& shape, const Shape& scales,
                DType type = kE4m3, DType scale_type = DType::kF32) {
  testing::write_parts(folder, {{"w", type, shape}, {"w_scale_inv", scale_type, scales}});
}

/// Of all elements, one after the other; scale(matrix, row, column): the number of its scale.
template <typename Scale>
void expect_numbers(const std::filesystem::path& folder, const StoredForm& form, const Shape& shape,
                    const Scale& scale, DType type = kE4m3, DType scale_type = DType::kF32) {
  const SafetensorsFolder set(folder);
  ASSERT_EQ(fp8_complaint(set, form, "w"), "");
  const StoredTensor tensor(set, form, "w");
  const Index cols = shape.back(), rows = shape[shape.size() - 2], all = set.info("w").elements();
  std::vector<float> numbers(at(all));
  tensor.read(0, numbers);
  for (Index i = 0; i < all; ++i) {
    const float expected =
        fp8_number(type, i) * scale_number(scale_type, scale(i / cols / rows, i / cols % rows, i % cols));
    ASSERT_EQ(numbers[at(i)], expected) << i;
    float alone = 0;
    tensor.read(i, {&alone, 1});
    ASSERT_EQ(alone, expected) << i;
  }
  for (Index begin = 0; begin < all; ++begin) {  // stretches that begin and end within blocks
    std::vector<float> stretch(at(std::min<Index>(all - begin, cols + 2)));
    tensor.read(begin, stretch);
    for (Index i = 0; i < std::ssize(stretch); ++i) ASSERT_EQ(stretch[at(i)], numbers[at(begin + i)]);
  }
}

TEST(StoredTensor, HasTheScaleOfItsBlockAlsoAtRaggedEdges) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2})
    for (const DType scales : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0}) {
      const testing::TemporaryFolder folder;
      write_pair(folder.path(), {5, 7}, {3, 3}, type, scales);
      expect_numbers(
          folder.path(), kBlocks, {5, 7}, [](Index, Index r, Index c) { return r / 2 * 3 + c / 3; }, type,
          scales);
    }
  for (const auto& [shape, scales] :
       {std::pair<Shape, Shape>{{1, 1}, {1, 1}}, {{2, 3}, {1, 1}}, {{4, 6}, {2, 2}}}) {
    const testing::TemporaryFolder folder;
    write_pair(folder.path(), shape, scales);
    const Index across = scales[1];
    expect_numbers(folder.path(), kBlocks, shape,
                   [&](Index, Index r, Index c) { return r / 2 * across + c / 3; });
  }
}

TEST(StoredTensor, OfAStackBeginsBlocksAnewInEachMatrixOrInEachHalfOfItsRows) {
  const testing::TemporaryFolder whole, halves, wide;
  write_pair(whole.path(), {2, 5, 4}, {2, 3, 2});
  expect_numbers(whole.path(), kBlocks, {2, 5, 4},
                 [](Index m, Index r, Index c) { return (m * 3 + r / 2) * 2 + c / 3; });
  write_pair(halves.path(), {2, 6, 4}, {2, 4, 2});  // 3 rows of each half need two blocks
  expect_numbers(halves.path(), kBlocks, {2, 6, 4},
                 [](Index m, Index r, Index c) { return (m * 4 + r / 3 * 2 + r % 3 / 2) * 2 + c / 3; });
  write_pair(wide.path(), {2, 6, 4}, {2, 2, 1});  // as transformers 5 has a stack that is less than a block
  expect_numbers(wide.path(), {.as = StoredAs::kFp8, .block = {128, 128}}, {2, 6, 4},
                 [](Index m, Index r, Index) { return m * 2 + r / 3; });
}

TEST(StoredTensor, MayHaveAScaleForARowForATensorOrForAMatrix) {
  const StoredForm rows{.as = StoredAs::kFp8, .of_rows = true}, one{.as = StoredAs::kFp8, .of_tensors = true};
  const auto of_row = [](Index m, Index r, Index) { return m * 6 + r; };
  const auto of_all = [](Index, Index, Index) { return 0; };
  const auto of_matrix = [](Index m, Index, Index) { return m; };
  const auto of_half = [](Index m, Index r, Index) { return m * 2 + r / 3; };
  const auto expect = [&](const StoredForm& form, const Shape& shape, const Shape& scales,
                          const auto& scale) {
    const testing::TemporaryFolder folder;
    write_pair(folder.path(), shape, scales);
    expect_numbers(folder.path(), form, shape, scale);
  };
  expect(rows, {6, 5}, {6, 1}, of_row);
  expect(rows, {6, 5}, {6}, of_row);
  expect(rows, {2, 6, 5}, {2, 6, 1}, of_row);
  expect(one, {6, 5}, {}, of_all);
  expect(one, {6, 5}, {1}, of_all);
  expect(one, {6, 5}, {1, 1}, of_all);
  expect(one, {3, 6, 5}, {}, of_all);
  expect(one, {3, 6, 5}, {3}, of_matrix);
  expect(one, {3, 6, 5}, {3, 1, 1}, of_matrix);
  expect(one, {3, 6, 5}, {3, 2, 1}, of_half);
}

/// Where element (r, c) of a slice lies in the file is said here anew.
TEST(StoredTensor, IsReadInEveryLayoutOfASlice) {
  const testing::TemporaryFolder folder;
  write_pair(folder.path(), {2, 8, 10}, {2, 4, 4});
  const SafetensorsFolder set(folder.path());
  const Index first = 83;  // row 0, column 3 of the second matrix
  const struct {
    SliceLayout layout;
    Index rows, cols, step;
    Index (*place)(Index r, Index c);
  } cases[] = {
      {SliceLayout::kRows, 3, 10, 1, [](Index r, Index c) { return r * 10 + c; }},
      {SliceLayout::kTransposed, 4, 8, 1, [](Index r, Index c) { return c * 10 + r; }},
      {SliceLayout::kInterleaved, 6, 8, 1,
       [](Index r, Index c) { return c * 10 + (r < 3 ? 2 * r : 2 * (r - 3) + 1); }},
      {SliceLayout::kSteps, 5, 3, 2, [](Index r, Index c) { return r * 10 + c * 2; }},
      {SliceLayout::kInterleavedSteps, 4, 3, 2,
       [](Index r, Index c) { return (r < 2 ? 2 * r : 2 * (r - 2) + 1) * 10 + c * 2; }},
      {SliceLayout::kTurnedSteps, 3, 6, 2, [](Index r, Index c) { return r * 2 + c * 10; }},
  };
  for (const auto& c : cases) {
    Matrix rows(c.rows, c.cols);
    read_slice(set, kBlocks, {"w", 0, c.rows, {2, 8, 10}, first, c.layout, c.step}, rows);
    for (Index i = 0; i < c.rows; ++i)
      for (Index j = 0; j < c.cols; ++j) {
        const Index place = first + c.place(i, j), row = place / 10 % 8;
        const Index scale = (place / 80 * 4 + row / 2) * 4 + place % 10 / 3;
        ASSERT_EQ(rows.row(i)[j], fp8_number(kE4m3, place) * scale_number(DType::kF32, scale))
            << static_cast<int>(c.layout) << ": " << i << ' ' << j;
      }
  }
}

TEST(StoredTensor, ComesInStretchesThatCoverItOnce) {
  const testing::TemporaryFolder folder;
  const Index rows = 2051, cols = 2049;  // more than are read at once
  write_pair(folder.path(), {rows, cols}, {17, 17});
  const SafetensorsFolder set(folder.path());
  const StoredForm form{.as = StoredAs::kFp8, .block = {128, 128}};
  Index next = 5, wrong = 0;
  StoredTensor(set, form, "w")
      .for_stretches(next, rows * cols - 9, [&](Index begin, std::span<const float> found) {
        EXPECT_EQ(begin, next);
        for (const float number : found) {
          const Index scale = next / cols / 128 * 17 + next % cols / 128;
          wrong += number == fp8_number(kE4m3, next) * scale_number(DType::kF32, scale) ? 0 : 1;
          ++next;
        }
      });
  EXPECT_EQ(next, rows * cols - 4);
  EXPECT_EQ(wrong, 0);
}

TEST(StoredTensor, OfAnotherFormatIsReadAsItIsAndFp8KeepsNaN) {
  const testing::TemporaryFolder folder;
  testing::write_parts(folder.path(), {{"w", DType::kF32, {2, 3}},
                                       {"x", kE4m3, {1, 2}, [](Index) { return std::byte{0xFF}; }},
                                       {"x_scale", DType::kF32, {1, 1}}});
  const SafetensorsFolder set(folder.path());
  std::vector<float> numbers(6), pair(2);
  StoredTensor(set, kBlocks, "w").read(0, numbers);
  EXPECT_EQ(numbers[4], scale_number(DType::kF32, 4));
  StoredTensor(set, kBlocks, "x").read(0, pair);
  EXPECT_TRUE(std::isnan(pair[1]));
  EXPECT_THROW(StoredTensor(set, kBlocks, "x").read(1, pair), ShapeError);
}

TEST(StoredTensor, TellsScalesOfWeightsFromThoseOfActivations) {
  const testing::TemporaryFolder folder;
  testing::write_parts(folder.path(), {{"a.q_proj.weight", kE4m3, {2, 3}},
                                       {"a.q_proj.weight_scale", DType::kF32, {1, 1}},
                                       {"a.q_proj.input_scale", DType::kF32, {1}},
                                       {"b.weight", DType::kF32, {2, 3}},
                                       {"b.weight_scale_inv", DType::kF32, {1, 1}}});
  const SafetensorsFolder set(folder.path());
  EXPECT_TRUE(has_scales(set, kBlocks, "a.q_proj.weight"));
  EXPECT_FALSE(has_scales(set, {}, "a.q_proj.weight"));
  EXPECT_FALSE(has_scales(set, kBlocks, "b.weight"));
  EXPECT_TRUE(is_scale(set, kBlocks, "a.q_proj.weight_scale"));
  EXPECT_FALSE(is_scale(set, {}, "a.q_proj.weight_scale"));
  EXPECT_FALSE(is_scale(set, kBlocks, "b.weight_scale_inv"));  // of a tensor that is no FP8
  EXPECT_FALSE(is_scale(set, kBlocks, "a.q_proj.weight"));
  for (const std::string name : {"a.q_proj.input_scale", "attn.k_scale", "attn.v_scale",
                                 "mlp.experts.gate_up_proj_activation_scale", "a.output_scale"}) {
    EXPECT_TRUE(is_of_activations(kBlocks, name)) << name;
    EXPECT_FALSE(is_of_activations({}, name)) << name;
  }
  for (const std::string name : {"a.q_proj.weight_scale", "router.per_expert_scale", "input_scale_a"})
    EXPECT_FALSE(is_of_activations(kBlocks, name)) << name;
}

TEST(StoredTensor, NamesWhatIsWrongWithATensorOrItsScales) {
  const StoredPart weight{"w", kE4m3, {5, 7}};
  const struct {
    StoredForm form;
    std::vector<StoredPart> parts;
    std::string complaint;
  } cases[] = {
      {kBlocks,
       {weight},
       "tensor w: is F8_E4M3 [5,7], and its scales are missing: expected a tensor w_scale_inv or w_scale"},
      {kBlocks,
       {weight, {"w_scale_inv", DType::kF32, {3, 2}}},
       "tensor w_scale_inv: expected [3,3], found [3,2]; quantization_config says a scale for each block of "
       "[2, 3], and w is F8_E4M3 [5,7]"},
      {kBlocks, {weight, {"w_scale_inv", DType::kF32, {9}}}, "expected [3,3], found [9]"},
      {kBlocks, {weight, {"w_scale_inv", DType::kF32, {1}}}, "expected [3,3], found [1]"},
      {kBlocks,
       {{"w", kE4m3, {2, 6, 4}}, {"w_scale_inv", DType::kF32, {2, 3}}},
       "expected [2,3,2] or [2,4,2], found [2,3]"},
      {{.as = StoredAs::kFp8, .of_rows = true, .of_tensors = true},
       {weight, {"w_scale", DType::kF32, {7, 1}}},
       "tensor w_scale: expected [5,1] or [5] or [] or [1] or [1,1], found [7,1]; quantization_config says a "
       "scale for each row, tensor"},
      {kBlocks,
       {weight, {"w_scale_inv", DType::kI32, {3, 3}}},
       "tensor w_scale_inv: expected scales in F32, BF16, F16 or F8_E8M0, found I32"},
      {kBlocks,
       {{"w", kE4m3, {7}}, {"w_scale_inv", DType::kF32, {1}}},
       "tensor w: expected a matrix or a stack of them in FP8, found F8_E4M3 [7]"},
      {{},
       {weight},
       R"(no quantization_config of FP8, which says what its scales are of; if w_scale_inv has one for each 128 x 128 block, add "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})"},
      {{},
       {weight, {"w_scale", DType::kF32, {3, 3}}},
       "tensor w: expected F32, BF16 or F16, found F8_E4M3 [5,7], and config.json has no"},
  };
  for (const auto& c : cases) {
    const testing::TemporaryFolder folder;
    testing::write_parts(folder.path(), c.parts);
    const SafetensorsFolder set(folder.path());
    const std::string complaint = fp8_complaint(set, c.form, "w");
    EXPECT_NE(complaint.find(c.complaint), std::string::npos) << complaint;
    EXPECT_EQ(testing::message_of<ConfigError>([&] { StoredTensor(set, c.form, "w"); }), complaint);
  }
}

/// Blocks of 4 rows: 12 rows have 3 as a whole; halves of 6 have 2 each, which are 4. Of 10 rows both have 3
/// or 4; of 14 both have 4, and begin at other rows.
TEST(StoredTensor, OfAStackOfGateAndUpMayNotMeanTwoThings) {
  const StoredForm form{.as = StoredAs::kFp8, .block = {4, 4}};
  const auto complaint = [&](const std::string& name, Index rows) {
    const testing::TemporaryFolder folder;
    testing::write_parts(folder.path(), {{name, DType::kF8E4M3, {2, rows, 4}},
                                         {name + "_scale_inv", DType::kF32, {2, (rows + 3) / 4, 1}}});
    return fp8_complaint(SafetensorsFolder(folder.path()), form, name);
  };
  EXPECT_EQ(complaint("experts.gate_up_proj", 12), "");
  EXPECT_NE(complaint("experts.gate_up_proj", 14).find("as a whole or of its gate and up apart"),
            std::string::npos);
  EXPECT_EQ(complaint("experts.down_proj", 14), "");
}

}  // namespace
}  // namespace moeloom::stored_tensor_test
