// Routing and rows in the order of experts: against the room's router, and against plain loops.
#include "moe/routing/router.hpp"

#include "c_arrays.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kTokens = 7, kExperts = 8, kTopK = 3, kWidth = 20;

struct RouterCase {
  const char* name;
  ml_router router;
  RouterSettings settings;
};

std::vector<RouterCase> router_cases(const ml_array* bias, std::span<const float> biases) {
  constexpr std::int64_t kSize = sizeof(ml_router);
  RouterSettings sigmoid = softmax_router(kExperts, kTopK);
  sigmoid.score = RouterScore::kSigmoid;
  sigmoid.divide = {DivideBy::kSumPlus, 1e-20f};
  sigmoid.scaling_factor = 2.5f;
  sigmoid.num_groups = 4;
  sigmoid.topk_group = 2;
  sigmoid.correction_bias = biases;
  RouterSettings chosen = softmax_router(kExperts, kTopK, false);
  chosen.choose_by = ChooseBy::kLogit;
  chosen.weigh_by = WeighBy::kSoftmaxOfChosen;
  return {{"softmax", {kSize, kTopK, ML_SOFTMAX, 1, 0, 0, 0, 0, nullptr}, softmax_router(kExperts, kTopK)},
          {"undivided",
           {kSize, kTopK, ML_SOFTMAX, 0, 0, 0, 0, 0, nullptr},
           softmax_router(kExperts, kTopK, false)},
          {"sigmoid", {kSize, kTopK, ML_SIGMOID, 1, 1e-20f, 2.5f, 4, 2, bias}, sigmoid},
          {"chosen", {kSize, kTopK, ML_SOFTMAX_OF_CHOSEN, 0, 0, 0, 0, 0, nullptr}, chosen}};
}

TEST(CRoute, HasTheNumbersOfTheRouter) {
  const Array bias(random_matrix(1, kExperts, 9), {kExperts});
  const Matrix biases = bias.numbers();
  for (const RouterCase& c : router_cases(bias, biases.view().flat())) {
    SCOPED_TRACE(c.name);
    for (const std::int32_t integer : {ML_I64, ML_I32}) {
      const Array logits(random_matrix(kTokens, kExperts, 1), Lie{ML_F32, 2}),
          idx({kTokens, kTopK}, {integer}), weights({kTokens, kTopK});
      Routing routing;
      const Matrix numbers = logits.numbers();
      route(numbers, c.settings, routing);
      EXPECT_OK(ml_route(&c.router, logits, idx, weights));
      EXPECT_EQ(idx.integers(), std::vector<Index>(routing.topk_idx.begin(), routing.topk_idx.end()));
      expect_near(weights.numbers(), {routing.topk_weights.data(), kTokens, kTopK}, 0, "weights");
      const Array d_weights(random_matrix(kTokens, kTopK, 2)), d_logits({kTokens, kExperts});
      Matrix expected(kTokens, kExperts);
      route_backward(routing, c.settings, d_weights.numbers().view().flat(), {}, {}, expected);
      EXPECT_OK(ml_route_grad(&c.router, d_weights, logits, idx, d_logits));
      expect_near(d_logits.numbers(), expected, 0, "d_logits");
    }
  }
}

TEST(CRoute, SaysWhatDoesNotFit) {
  const Array logits({kTokens, kExperts}), idx({kTokens, kTopK}, {ML_I64}), weights({kTokens, kTopK});
  ml_router router{sizeof(ml_router), kExperts + 1, ML_SOFTMAX, 1, 0, 0, 0, 0, nullptr};
  EXPECT_STATUS(ml_route(&router, logits, idx, weights), ML_SHAPE, "top_k");
  router.top_k = kTopK;
  EXPECT_STATUS(ml_route(&router, logits, weights, weights), ML_TYPE, "topk_idx is ML_F32");
  EXPECT_STATUS(ml_route(&router, logits, idx, logits), ML_SHAPE,
                "topk_weights is [7, 8] and must be [7, 3]");
  router.score = 5;
  EXPECT_STATUS(ml_route(&router, logits, idx, weights), ML_CONFIG, "ML_SIGMOID");
}

/// Choices with slots that are not here, in both spellings.
std::vector<Index> choices() {
  const auto chosen = random_choices(kTokens, kTopK, kExperts, 3);
  std::vector<Index> ids(chosen.begin(), chosen.end());
  ids[2] = -1;
  ids[10] = kExperts;
  return ids;
}

TEST(CPermute, OrdersByExpertThenTokenAndComesBack) {
  const Array idx = Array::integers(choices(), {kTokens, kTopK}, ML_I32);
  Array order({kTokens * kTopK}, {ML_I64}), counts({kExperts}, {ML_I64});
  Index rows = 0;
  EXPECT_OK(ml_permute_plan(idx, kExperts, order, counts, &rows));
  ASSERT_EQ(rows, kTokens * kTopK - 2);
  order.get().shape[0] = rows;
  const std::vector<Index> slots = order.integers(), ids = choices();
  std::vector<Index> expected, expected_counts(kExperts);
  for (Index e = 0; e < kExperts; ++e)
    for (Index slot = 0; slot < kTokens * kTopK; ++slot)
      if (ids[at(slot)] == e) expected.push_back(slot), ++expected_counts[at(e)];
  EXPECT_EQ(slots, expected);
  EXPECT_EQ(counts.integers(), expected_counts);

  for (const Lie& lie : kLies) {
    const Array x(random_matrix(kTokens, kWidth, 1), lie), permuted({rows, kWidth}, lie),
        y({kTokens, kWidth}, lie);
    EXPECT_OK(ml_permute(x, order, kTopK, permuted));
    const Matrix from = x.numbers(), moved = permuted.numbers();
    for (Index row = 0; row < rows; ++row)
      for (Index j = 0; j < kWidth; ++j) ASSERT_EQ(moved.row(row)[j], from.row(slots[at(row)] / kTopK)[j]);

    const Array weights(random_matrix(kTokens, kTopK, 2), lie), dy(random_matrix(kTokens, kWidth, 4), lie);
    const Array d_rows({rows, kWidth}, lie), d_weights({kTokens, kTopK}, lie);
    const Matrix w = weights.numbers(), above = dy.numbers();
    Matrix sums(kTokens, kWidth), plain(kTokens, kWidth), d_expected(rows, kWidth),
        dw_expected(kTokens, kTopK);
    for (Index row = 0; row < rows; ++row)
      for (Index j = 0; j < kWidth; ++j) {
        const Index slot = slots[at(row)], token = slot / kTopK;
        sums.row(token)[j] += w.view().data[slot] * moved.row(row)[j];
        plain.row(token)[j] += moved.row(row)[j];
        d_expected.row(row)[j] = w.view().data[slot] * above.row(token)[j];
        dw_expected.view().data[slot] += moved.row(row)[j] * above.row(token)[j];
      }
    const double tolerance = 1e-6 + rounding_of(lie.dtype);
    EXPECT_OK(ml_unpermute(permuted, order, weights, kTopK, y));
    expect_near(y.numbers(), sums, tolerance, "y");
    EXPECT_OK(ml_unpermute(permuted, order, nullptr, kTopK, y));
    expect_near(y.numbers(), plain, tolerance, "y without weights");
    EXPECT_OK(ml_unpermute_grad(dy, permuted, order, weights, d_rows, d_weights));
    expect_near(d_rows.numbers(), d_expected, tolerance, "d_rows");
    expect_near(d_weights.numbers(), dw_expected, tolerance, "d_topk_weights");
  }
}

TEST(CPermute, SaysWhatDoesNotFit) {
  const Array idx = Array::integers({0, 1, 9, 1}, {2, 2}), order({4}, {ML_I64}), counts({3}, {ML_I64});
  Index rows = 0;
  EXPECT_STATUS(ml_permute_plan(idx, 3, order, counts, &rows), ML_SHAPE, "expert 9; experts go from 0 to 2");
  EXPECT_STATUS(ml_permute_plan(idx, 4, order, counts, &rows), ML_SHAPE, "counts is [3] and must be [4]");
  const Array x({2, 5}), out({2, 5}), far = Array::integers({0, 4}, {2});
  EXPECT_STATUS(ml_permute(x, far, 2, out), ML_SHAPE, "outside of the 4");
}

}  // namespace
}  // namespace moeloom
