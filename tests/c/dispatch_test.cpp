// Rows to experts and back by moeloom.h in one process: formats, and what does not fit.
#include <utility>

#include "layer.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kTokens = 9, kHidden = 24;

class CDispatch : public ::testing::Test {
 protected:
  CDispatch() { EXPECT_OK(ml_dispatch_plan(layer_.handle, layer_.topk_idx, &trip_)); }
  ~CDispatch() override { ml_trip_free(trip_); }
  Index rows() const { return ml_trip_rows(trip_); }

  const LayerInputs in_ = LayerInputs({.hidden = kHidden}, kTokens);
  CLayer layer_{in_, nullptr};
  ml_trip* trip_ = nullptr;
};

TEST_F(CDispatch, TakesEveryFormat) {
  for (const Lie& lie : kLies) {
    const Array x(in_.x, lie), scalars(in_.weights, lie);
    const Array landed({rows(), kHidden}, lie), numbers({rows()}, lie), y({kTokens, kHidden}, lie),
        back({kTokens, 2}, lie);
    EXPECT_OK(ml_dispatch(layer_.handle, trip_, x, scalars, landed, numbers));
    EXPECT_OK(ml_combine(layer_.handle, trip_, landed, nullptr, numbers, y, back));
    Matrix twice = x.numbers();
    add(x.numbers(), twice);
    expect_near(y.numbers(), twice, 0, "y");
    expect_near(back.numbers(), scalars.numbers(), 0, "slot_scalars");
    const Array wide({kTokens, kHidden});
    EXPECT_OK(ml_combine(layer_.handle, trip_, landed, numbers, nullptr, wide, nullptr));
    Matrix weighted = x.numbers();
    for (Index t = 0; t < kTokens; ++t)
      for (Index j = 0; j < kHidden; ++j)
        weighted.view()(t, j) *= scalars.numbers().view()(t, 0) + scalars.numbers().view()(t, 1);
    expect_near(wide.numbers(), weighted, 1e-6, "weighted");
  }
}

TEST_F(CDispatch, CountsRowsOfEachExpert) {
  const Array counts({in_.shape.experts}, {ML_I64});
  EXPECT_OK(ml_trip_counts(trip_, counts));
  std::vector<Index> expected(at(in_.shape.experts));
  for (const Index id : in_.ids) ++expected[at(id)];
  EXPECT_EQ(counts.integers(), expected);
  EXPECT_STATUS(ml_trip_counts(trip_, Array({5}, {ML_I64})), ML_SHAPE, "counts is [5] and must be [6]");
}

TEST_F(CDispatch, SaysWhatDoesNotFit) {
  const Array rows({this->rows(), kHidden}), numbers({this->rows()}), y({kTokens, kHidden});
  EXPECT_STATUS(ml_dispatch(layer_.handle, trip_, Array({5, kHidden}), nullptr, rows, nullptr), ML_SHAPE,
                "x is [5, 24] and must be [9, any]");
  EXPECT_STATUS(ml_dispatch(layer_.handle, trip_, layer_.x, nullptr, Array({3, kHidden}), nullptr), ML_SHAPE,
                "rows is [3, 24] and must be [18, 24]");
  EXPECT_STATUS(ml_dispatch(layer_.handle, trip_, layer_.x, layer_.topk_weights, rows, nullptr), ML_SHAPE,
                "one is NULL");
  EXPECT_STATUS(
      ml_dispatch(layer_.handle, trip_, layer_.x, nullptr, Array({this->rows(), kHidden}, {ML_I64}), nullptr),
      ML_TYPE, "rows is ML_I64");
  EXPECT_STATUS(ml_combine(layer_.handle, trip_, rows, Array({2}), nullptr, y, nullptr), ML_SHAPE,
                "row_weights is [2] and must be [18]");
  EXPECT_STATUS(ml_combine(layer_.handle, nullptr, rows, nullptr, nullptr, y, nullptr), ML_SHAPE,
                "trip is NULL");
  EXPECT_STATUS(
      ml_dispatch(layer_.handle, trip_, Array({kTokens, 0}), nullptr, Array({this->rows(), 0}), nullptr),
      ML_SHAPE, "x has no columns");
  EXPECT_STATUS(ml_combine(layer_.handle, trip_, Array({this->rows(), 0}), nullptr, nullptr,
                           Array({kTokens, 0}), nullptr),
                ML_SHAPE, "rows has no columns");
  ml_trip* written = trip_;
  EXPECT_STATUS(ml_dispatch_plan(layer_.handle, Array({2, 0}, {ML_I64}), &written), ML_SHAPE, "no columns");
  EXPECT_EQ(written, nullptr);
}

TEST_F(CDispatch, TripsOfTwoKindsAreToldApart) {
  EXPECT_OK(layer_.forward());
  const Array rows({this->rows(), kHidden});
  EXPECT_STATUS(ml_dispatch(layer_.handle, layer_.trip, layer_.x, nullptr, rows, nullptr), ML_SHAPE,
                "the trip is of ml_experts_forward()");
  EXPECT_STATUS(ml_trip_counts(layer_.trip, nullptr), ML_SHAPE, "the trip is of ml_experts_forward()");
  std::swap(layer_.trip, trip_);
  EXPECT_STATUS(layer_.backward(layer_.grads(ML_REPLACE)), ML_SHAPE, "the trip is of ml_dispatch_plan()");
  std::swap(layer_.trip, trip_);
  EXPECT_OK(layer_.backward(layer_.grads(ML_REPLACE)));  // which was not used up
  CLayer other(in_, nullptr);
  EXPECT_STATUS(ml_dispatch(other.handle, trip_, layer_.x, nullptr, rows, nullptr), ML_SHAPE,
                "other experts");
}

}  // namespace
}  // namespace moeloom
