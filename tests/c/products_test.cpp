// Grouped products of arrays in both layouts, against sums in double.
#include <sstream>

#include "c_arrays.hpp"
#include "support/program_region.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kDepth = 40, kWidth = 24;
const std::vector<Index> kCounts = {3, 0, 21, 1};
constexpr Index kExperts = 4, kRows = 25;

Index expert_of(Index row) {
  Index expert = 0;
  for (Index end = kCounts[0]; row >= end;) end += kCounts[at(++expert)];
  return expert;
}

enum class Kind { kStack, kSliced, kList };

/// Weights of all experts, [N, C] or [C, N] each: a stack, one with rows between its experts, or a list.
class Weights {
 public:
  Weights(std::int32_t layout, Kind kind, Lie lie) : layout_(layout) {
    const bool out_in = layout == ML_OUT_IN;
    const Index rows = out_in ? kWidth : kDepth, cols = out_in ? kDepth : kWidth;
    const Index each = kind == Kind::kSliced ? rows + 1 : rows;
    const Matrix all = random_matrix(kExperts * each, cols, 7);
    for (Index e = 0; e < kExperts && kind == Kind::kList; ++e)
      arrays_.emplace_back(all.view().rows_from(e * each, rows), lie);
    if (kind != Kind::kList) arrays_.emplace_back(all.view(), std::vector{kExperts, each, cols}, lie);
    for (const Array& array : arrays_) views_.push_back(array.get());
    if (kind == Kind::kSliced) views_[0].shape[1] = rows;
    rows_ = rows;
  }
  ml_weights get() const { return {views_.data(), std::ssize(views_), layout_}; }
  /// [C, N] of each expert, as numbers.
  std::vector<Matrix> numbers() const {
    std::vector<Matrix> all;
    for (Index e = 0; e < kExperts; ++e) {
      const Matrix stored = arrays_[at(std::ssize(arrays_) > 1 ? e : 0)].numbers();
      const ConstMatrixView own =
          stored.view().rows_from(std::ssize(arrays_) > 1 ? 0 : e * (stored.rows() / kExperts), rows_);
      Matrix in_out(kDepth, kWidth);
      for (Index c = 0; c < kDepth; ++c)
        for (Index n = 0; n < kWidth; ++n) in_out.row(c)[n] = layout_ == ML_OUT_IN ? own(n, c) : own(c, n);
      all.push_back(std::move(in_out));
    }
    return all;
  }

 private:
  std::int32_t layout_;
  Index rows_ = 0;
  std::vector<Array> arrays_;
  std::vector<ml_array> views_;
};

Matrix product(ConstMatrixView x, const std::vector<Matrix>& weights) {
  Matrix y(kRows, kWidth);
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kWidth; ++n) {
      double sum = 0;
      for (Index c = 0; c < kDepth; ++c)
        sum += static_cast<double>(x(r, c)) * static_cast<double>(weights[at(expert_of(r))].row(c)[n]);
      y.row(r)[n] = static_cast<float>(sum);
    }
  return y;
}

Matrix input_grad(ConstMatrixView dy, const std::vector<Matrix>& weights) {
  Matrix dx(kRows, kDepth);
  for (Index r = 0; r < kRows; ++r)
    for (Index c = 0; c < kDepth; ++c) {
      double sum = 0;
      for (Index n = 0; n < kWidth; ++n)
        sum += static_cast<double>(dy(r, n)) * static_cast<double>(weights[at(expert_of(r))].row(c)[n]);
      dx.row(r)[c] = static_cast<float>(sum);
    }
  return dx;
}

void add_weight_grad(ConstMatrixView dy, ConstMatrixView x, std::vector<Matrix>& sums) {
  for (Index r = 0; r < kRows; ++r)
    for (Index c = 0; c < kDepth; ++c)
      for (Index n = 0; n < kWidth; ++n) sums[at(expert_of(r))].row(c)[n] += dy(r, n) * x(r, c);
}

struct Case {
  std::int32_t layout;
  Kind kind;
};
const std::vector<Case> kCases = {{ML_OUT_IN, Kind::kStack},  {ML_OUT_IN, Kind::kSliced},
                                  {ML_OUT_IN, Kind::kList},   {ML_IN_OUT, Kind::kStack},
                                  {ML_IN_OUT, Kind::kSliced}, {ML_IN_OUT, Kind::kList}};

/// Sums of some tens of products, each rounded once more where the format is narrower.
double tolerance_of(const Lie& lie) {
  return 4e-6 + rounding_of(lie.dtype);
}

template <typename Use>
void for_each_case(Use use) {
  for (const Case& c : kCases)
    for (const Lie& lie : kLies) {
      std::ostringstream where;
      where << "layout " << c.layout << ", kind " << static_cast<int>(c.kind) << ", " << lie;
      SCOPED_TRACE(where.str());
      use(c, lie);
    }
}

TEST(CProducts, AreThoseOfEveryExpertInAnyFormatAndLayout) {
  for_each_case([](const Case& c, const Lie& lie) {
    const Weights weights(c.layout, c.kind, lie);
    const ml_weights w = weights.get();
    const Array x(random_matrix(kRows, kDepth, 1), lie), counts = Array::integers(kCounts, {kExperts}),
                                                         y({kRows, kWidth}, lie);
    EXPECT_OK(ml_gmm(x, &w, counts, y));
    expect_near(y.numbers(), product(x.numbers(), weights.numbers()), tolerance_of(lie), "y");
    const Array dy(random_matrix(kRows, kWidth, 2), lie), dx({kRows, kDepth}, lie);
    EXPECT_OK(ml_gmm_input_grad(dy, &w, counts, dx));
    expect_near(dx.numbers(), input_grad(dy.numbers(), weights.numbers()), tolerance_of(lie), "dx");
  });
}

TEST(CProducts, GradientsOfWeightsReplaceOrAreAdded) {
  for_each_case([](const Case& c, const Lie& lie) {
    const Array x(random_matrix(kRows, kDepth, 1), lie), dy(random_matrix(kRows, kWidth, 2), lie);
    const Array counts = Array::integers(kCounts, {kExperts}, ML_I32);
    for (const std::int32_t mode : {ML_REPLACE, ML_ADD}) {
      const Weights weights(c.layout, c.kind, lie);
      const ml_weights w = weights.get();
      std::vector<Matrix> expected = weights.numbers();
      if (mode == ML_REPLACE)
        for (Matrix& each : expected) fill(each, 0);
      add_weight_grad(dy.numbers(), x.numbers(), expected);
      EXPECT_OK(ml_gmm_weight_grad(dy, x, counts, &w, mode));
      const std::vector<Matrix> got = weights.numbers();
      for (Index e = 0; e < kExperts; ++e)
        expect_near(got[at(e)], expected[at(e)], tolerance_of(lie), "dw of expert " + std::to_string(e));
    }
  });
}

TEST(CProducts, SayWhatDoesNotFit) {
  const Weights weights(ML_OUT_IN, Kind::kStack, {});
  ml_weights w = weights.get();
  const Array x({kRows, kDepth}), y({kRows, kWidth}), counts = Array::integers(kCounts, {kExperts});
  EXPECT_STATUS(ml_gmm(nullptr, &w, counts, y), ML_SHAPE, "x is NULL");
  EXPECT_STATUS(ml_gmm(x, nullptr, counts, y), ML_SHAPE, "weights is NULL");
  EXPECT_STATUS(ml_gmm(y, &w, counts, y), ML_SHAPE, "x is [25, 24] and must be [25, 40]");
  EXPECT_STATUS(ml_gmm(x, &w, Array::integers({1, 2}, {2}), y), ML_SHAPE,
                "weights is [4, 24, 40] and must be [2, any, any]");
  EXPECT_STATUS(ml_gmm(x, &w, Array::integers({26, -1, 0, 0}, {4}), y), ML_SHAPE, "negative");
  EXPECT_STATUS(ml_gmm(x, &w, x, y), ML_SHAPE, "counts is [25, 40]");
  EXPECT_STATUS(ml_gmm(x, &w, Array(zeros(1, 4), {4}), y), ML_TYPE,
                "counts is ML_F32 and must be ML_I64 or ML_I32");
  Array strided({kRows, kDepth});
  strided.get().stride[1] = 2;
  EXPECT_STATUS(ml_gmm(strided, &w, counts, y), ML_SHAPE, "a last stride of 2, which must be 1");
  Array nothing({kRows, kDepth});
  nothing.get().data = nullptr;
  EXPECT_STATUS(ml_gmm(nothing, &w, counts, y), ML_SHAPE, "has no data");
  Array odd({kRows, kDepth});
  odd.get().dtype = 77;
  EXPECT_STATUS(ml_gmm(odd, &w, counts, y), ML_TYPE, "unknown dtype 77");
  odd.get().ndim = 9;
  EXPECT_STATUS(ml_gmm(odd, &w, counts, y), ML_SHAPE, "9 dimensions");
  EXPECT_STATUS(ml_gmm_weight_grad(y, x, counts, &w, 5), ML_SHAPE, "ML_REPLACE or ML_ADD");
  ml_array one = w.arrays[0];
  one.stride[0] = 0;  // all experts' gradients in one place
  const ml_weights upon = {&one, 1, ML_OUT_IN};
  EXPECT_STATUS(ml_gmm_weight_grad(y, x, counts, &upon, ML_REPLACE), ML_SHAPE, "one element in several ways");
  w.layout = 3;
  EXPECT_STATUS(ml_gmm(x, &w, counts, y), ML_SHAPE, "ML_OUT_IN or ML_IN_OUT");
}

TEST(CProducts, AreThoseOfOneCallInARegionOfTheProgram) {
  const Weights weights(ML_OUT_IN, Kind::kStack, {});
  const ml_weights w = weights.get();
  const Array x(random_matrix(kRows, kDepth, 1)), counts = Array::integers(kCounts, {kExperts});
  const Array expected({kRows, kWidth});
  EXPECT_OK(ml_gmm(x, &w, counts, expected));
  const Weights gradients(ML_OUT_IN, Kind::kStack, {});
  const ml_weights once = gradients.get();
  EXPECT_OK(ml_gmm_weight_grad(expected, x, counts, &once, ML_REPLACE));
  for (const Index threads : {1, 2}) {
    EXPECT_OK(ml_set_threads(threads));
    const int calls = in_program_region(5, [&] {
      const Weights own(ML_OUT_IN, Kind::kStack, {});
      const ml_weights gradient = own.get();
      const Array y({kRows, kWidth});
      for (int i = 0; i < 3; ++i) {
        EXPECT_OK(ml_gmm(x, &w, counts, y));
        EXPECT_OK(ml_gmm_weight_grad(y, x, counts, &gradient, ML_REPLACE));
      }
      for (Index e = 0; e < kExperts; ++e)
        expect_near(own.numbers()[at(e)], gradients.numbers()[at(e)], 0, "dw of expert " + std::to_string(e));
      expect_near(y.numbers(), expected.numbers(), 0, "y");
    });
    EXPECT_EQ(calls, 5);
  }
  EXPECT_OK(ml_set_threads(0));
}

TEST(CProducts, NoExpertsAreNoError) {
  using Shape = std::vector<Index>;
  const Array stack(Shape{0, kDepth, kWidth}), x(Shape{0, kDepth}), y(Shape{0, kWidth});
  const Array counts = Array::integers({}, {0});
  for (const std::int64_t distance : {std::int64_t{1}, kDepth * kWidth}) {  // as NumPy and torch have it
    ml_array weights = stack.get();
    weights.stride[0] = distance;
    const ml_weights w = {&weights, 1, ML_IN_OUT};
    EXPECT_OK(ml_gmm(x, &w, counts, y));
    EXPECT_OK(ml_gmm_input_grad(y, &w, counts, x));
    EXPECT_OK(ml_gmm_weight_grad(y, x, counts, &w, ML_REPLACE));
  }
}

TEST(CProducts, NoRowsAreNoError) {
  const Weights weights(ML_IN_OUT, Kind::kStack, {});
  const ml_weights w = weights.get();
  const Array x({0, kDepth}), y({0, kWidth}), counts = Array::integers({0, 0, 0, 0}, {kExperts});
  EXPECT_OK(ml_gmm(x, &w, counts, y));
  EXPECT_OK(ml_gmm_weight_grad(y, x, counts, &w, ML_REPLACE));
  for (const Matrix& each : weights.numbers()) expect_near(each, zeros(kDepth, kWidth), 0, "dw");
}

}  // namespace
}  // namespace moeloom
