// Arrays, and numbers beside them, that no caller means: sizes that overflow, strides the other way, memory
// that is not there.
#include <climits>
#include <limits>

#include "c_arrays.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kHuge = Index{1} << 40;
constexpr Index kMost = std::numeric_limits<Index>::max();

/// An array of this shape and these strides, with memory of one number.
struct Claim {
  Claim(std::vector<Index> shape, std::vector<Index> stride, std::int32_t dtype = ML_F32) {
    array.ndim = static_cast<std::int32_t>(shape.size());
    array.dtype = dtype;
    array.data = &number;
    std::ranges::copy(shape, array.shape);
    std::ranges::copy(stride, array.stride);
  }
  Claim(const Claim&) = delete;
  double number = 0;
  ml_array array = {};
};

TEST(CArrays, MoreElementsThanCanBeCountedAreRefused) {
  Array sums({2}, {ML_F64});
  for (const auto& [shape, stride] : std::vector<std::pair<std::vector<Index>, std::vector<Index>>>{
           {{kHuge, kHuge}, {0, 1}},        // rows that lie on each other
           {{kHuge, kHuge, 0}, {0, 0, 1}},  // no element, and a product on the way to it
           {{2, 2, kMost}, {0, 0, 1}},
           {{2, kMost / 4}, {0, 1}},  // bytes that cannot be
           {{3, 2}, {kMost / 2, 1}},  // a distance that cannot be
           {{3, 0}, {kMost, 1}}}) {
    Claim x(shape, stride);
    EXPECT_STATUS(ml_squares(&x.array, sums), ML_SHAPE, "more than memory can hold");
    EXPECT_STATUS(ml_rmsnorm(&x.array, nullptr, &x.array, 0, 0, &x.array, nullptr), ML_SHAPE,
                  "more than memory can hold");
  }
}

TEST(CArrays, NegativeStridesAreRefusedWhereThereIsAnother) {
  Array sums({2}, {ML_F64});
  Claim x({2, 1}, {-1, 1}), one({1, 1}, {-1, -1});
  EXPECT_STATUS(ml_squares(&x.array, sums), ML_SHAPE, "stride");
  Array sum({1}, {ML_F64});
  EXPECT_OK(ml_squares(&one.array, sum));
}

TEST(CArrays, WithoutAnElementNeedNoMemory) {
  for (std::vector<Index> shape : {std::vector<Index>{0, 3}, {3, 0}, {2, 0, 3}, {2, 3, 0}}) {
    Array x(shape), y(shape), sums({shape[0]}, {ML_F64}), weight({shape.back()});
    for (Array* array : {&x, &y}) array->get().data = nullptr;
    EXPECT_OK(ml_squares(x, sums));
    if (shape.back() == 0) continue;
    EXPECT_OK(ml_rmsnorm(x, nullptr, weight, 1e-6f, 0, y, nullptr));
  }
}

TEST(CArrays, WithoutAnElementMayHaveAnyStrideFromNull) {
  Claim x({3, 0}, {7, 1}), w({2, 4, 0}, {40, 9, 1});
  x.array.data = w.array.data = nullptr;
  Array sums({3}, {ML_F64}), y(random_matrix(3, 4, 1));
  EXPECT_OK(ml_squares(&x.array, sums));
  const ml_weights weights{&w.array, 1, ML_OUT_IN};
  EXPECT_OK(ml_gmm(&x.array, &weights, Array::integers({2, 1}, {2}), y));
  const Matrix nothing = y.numbers();
  for (const float sum : nothing.view().flat()) EXPECT_EQ(sum, 0);
}

TEST(CArrays, WithoutAColumnArePermutedInNoMemory) {
  Array x({2, 0}), rows({1, 0});
  for (Array* array : {&x, &rows}) array->get().data = nullptr;
  EXPECT_OK(ml_permute(x, Array::integers({1}, {1}), 1, rows));
}

/// They are gone through, and K numbers of each are kept.
TEST(CArrays, MoreRowsOfNothingThanAnyoneHasAreRefused) {
  const Array order({0}, {ML_I64}), none({0, 0});
  for (const auto& shape : std::vector<std::vector<Index>>{{kHuge, 0}, {kHuge, 2, 0}, {1 << 24, 2, 0}}) {
    const Claim many(shape, std::vector<Index>(shape.size(), 1));
    const ml_array* const arrays[] = {&many.array};
    ml_group* group = nullptr;
    EXPECT_OK(ml_group_open(nullptr, &group));
    EXPECT_STATUS(ml_group_sum(group, arrays, 1, 1), ML_SHAPE, "16777216 rows of nothing");
    ml_group_close(group);
  }
  const Claim many({kHuge, 0}, {1, 1}), no_row({0, kHuge}, {1, 1});
  EXPECT_STATUS(ml_unpermute(none, order, nullptr, 2, &many.array), ML_SHAPE, "16777216 rows of nothing");
  EXPECT_OK(ml_unpermute(&no_row.array, order, nullptr, 2, &no_row.array));
}

TEST(CArrays, SumsOfSquaresMayLieAtAnyAddress) {
  const Array x(random_matrix(2, 3, 1));
  Array aligned({2}, {ML_F64}), odd({2}, {ML_F64, 0, 1});
  EXPECT_OK(ml_squares(x, aligned));
  EXPECT_OK(ml_squares(x, odd));
  EXPECT_EQ(std::memcmp(aligned.get().data, odd.get().data, 2 * sizeof(double)), 0);
}

TEST(CArrays, CountsWhoseSumOverflowsAreRefused) {
  const Array x({2, 3}), w({2, 4, 3});
  Array y({2, 4});
  const Array counts = Array::integers({kMost, kMost}, {2});
  const ml_weights weights{&w.get(), 1, ML_OUT_IN};
  EXPECT_STATUS(ml_gmm(x, &weights, counts, y), ML_SHAPE, "counts");
}

TEST(CArrays, AListOfWeightsIsNotReadBehindItsExperts) {
  const Array x({2, 3}), w({4, 3});
  Array y({2, 4});
  const Array counts = Array::integers({2}, {1});
  const ml_weights weights{&w.get(), kMost, ML_OUT_IN};  // of which one is there
  EXPECT_STATUS(ml_gmm(x, &weights, counts, y), ML_SHAPE, "arrays, and counts 1");
}

TEST(CArrays, ThatAreWrittenHaveNoElementTwice) {
  const Array x(random_matrix(3, 4, 1)), order = Array::integers({0, 1, 2}, {3});
  for (const auto& [shape, stride] :
       std::vector<std::pair<std::vector<Index>, std::vector<Index>>>{{{3, 4}, {0, 1}}, {{3, 4}, {3, 1}}}) {
    std::vector<float> numbers(12);
    ml_array y = x.get();
    y.data = numbers.data();
    std::ranges::copy(stride, y.stride);
    EXPECT_STATUS(ml_permute(x, order, 1, &y), ML_SHAPE, "one element in several ways");
    EXPECT_STATUS(ml_rmsnorm(x, nullptr, Array(random_matrix(1, 4, 2), {4}), 0, 0, &y, nullptr), ML_SHAPE,
                  "y is written");
    EXPECT_STATUS(ml_unpermute(x, Array::integers({0, 0, 2}, {3}), nullptr, 1, Array({3, 4})), ML_SHAPE,
                  "twice");
    const ml_array* summed[] = {&y};
    ml_group* alone = nullptr;
    EXPECT_OK(ml_group_open(nullptr, &alone));
    EXPECT_STATUS(ml_group_sum(alone, summed, 1, 1), ML_SHAPE, "one element in several ways");
    ml_group_close(alone);
  }
}

TEST(CArrays, SlotsThatStandTwiceHaveNoGradient) {
  const Array dy(random_matrix(2, 4, 1)), rows(random_matrix(3, 4, 2)), weights(random_matrix(2, 2, 3));
  Array d_rows({3, 4}), d_weights({2, 2});
  EXPECT_STATUS(ml_unpermute_grad(dy, rows, Array::integers({0, 3, 0}, {3}), weights, d_rows, d_weights),
                ML_SHAPE, "slot 0 twice");
  EXPECT_OK(ml_unpermute_grad(dy, rows, Array::integers({2, 3, 0}, {3}), weights, d_rows, d_weights));
}

TEST(CArrays, SumsOfMoreNumbersThanCanBeCountedAreRefused) {
  const Index most = (Index{1} << 60) - 1;
  Claim x({most, 1}, {1, 1});
  const std::vector<const ml_array*> arrays(16, &x.array);
  ml_group* alone = nullptr;
  EXPECT_OK(ml_group_open(nullptr, &alone));
  EXPECT_STATUS(ml_group_sum(alone, arrays.data(), 16, 1), ML_SHAPE, "more numbers than can be counted");
  ml_group_close(alone);
}

TEST(CArrays, NoNumberOfExpertsIsNegative) {
  Array counts({1}, {ML_I64}), order({2}, {ML_I64});
  Index rows = 0, begin = 0, count = 0;
  EXPECT_STATUS(ml_permute_plan(Array::integers({0, 0}, {1, 2}), -1, order, counts, &rows), ML_SHAPE,
                "negative");
  EXPECT_STATUS(ml_group_experts(nullptr, -3, &begin, &count), ML_SHAPE, "negative");
}

TEST(CArrays, AHandleThatHasNoPlaceIsNotMade) {
  const ml_experts_settings settings{sizeof(ml_experts_settings), 4, 0, nullptr, nullptr, 0, 0};
  EXPECT_STATUS(ml_group_open(nullptr, nullptr), ML_SHAPE, "group");
  EXPECT_STATUS(ml_experts_open(nullptr, &settings, nullptr), ML_SHAPE, "experts");
  EXPECT_STATUS(ml_folder_open(testing::TemporaryFolder().path().c_str(), nullptr), ML_SHAPE, "folder");
}

TEST(CArrays, MoreSlotsThanCanBeCountedAreRefused) {
  const Array x({2, 3}), order = Array::integers({0}, {1});
  Array rows({1, 3}), y({2, 3});
  for (const Index top_k : {kMost, kMost / 2 + 1, kMost / 3}) {
    EXPECT_STATUS(ml_permute(x, order, top_k, rows), ML_SHAPE, "K");
    EXPECT_STATUS(ml_unpermute(rows, order, nullptr, top_k, y), ML_SHAPE, "K");
  }
}

TEST(CArrays, ExpertsHaveNumbersOf31Bits) {
  Array counts({1}, {ML_I64});
  counts.get().shape[0] = Index{1} << 33;  // which is looked at before anything is written
  Index rows = 0;
  const Array chosen = Array::integers({Index{1} << 32}, {1, 1});
  EXPECT_STATUS(ml_permute_plan(chosen, Index{1} << 33, Array::integers({0}, {1}), counts, &rows), ML_SHAPE,
                "2^31 experts");
}

TEST(CArrays, ElementsOfAFileAreCountedWithoutOverflow) {
  const TemporaryFolder temporary;
  ml_tensor tensor{"a", "F64", 1, {2}};
  ml_shards* shards = nullptr;
  EXPECT_OK(ml_shards_open(temporary.path().c_str(), &tensor, 1, 0, 1, &shards));
  Array numbers({2}, {ML_F64});
  EXPECT_STATUS(ml_shards_write(shards, "a", Index{1} << 61, numbers), ML_SHAPE, "a");
  EXPECT_OK(ml_shards_write(shards, "a", 0, numbers));
  EXPECT_OK(ml_shards_close(shards));
  ml_folder* folder = nullptr;
  EXPECT_OK(ml_folder_open(temporary.path().c_str(), &folder));
  for (const Index begin : {Index{1} << 61, kMost, Index{1}, Index{-1}})
    EXPECT_STATUS(ml_folder_read(folder, "a", begin, numbers), ML_SHAPE, "a has 2 elements");
  ml_folder_close(folder);
  EXPECT_STATUS(ml_shards_open(temporary.path().c_str(), &tensor, -1, 0, 1, &shards), ML_SHAPE, "count");
}

}  // namespace
}  // namespace moeloom
