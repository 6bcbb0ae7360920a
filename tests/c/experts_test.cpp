// A layer's experts by moeloom.h in one process: the bits of the C++ interface, and what is asked of handles.
#include <limits>

#include "layer.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kTokens = 9;

/// Of the numbers that arrays in this format hold.
LayerInputs rounded(LayerInputs in, const Lie& tokens, const Lie& weights) {
  in.gate_up = Array(in.gate_up, weights).numbers();
  in.down = Array(in.down, weights).numbers();
  in.x = Array(in.x, tokens).numbers();
  in.dy = Array(in.dy, tokens).numbers();
  in.weights = Array(in.weights, tokens).numbers();
  return in;
}

TEST(CExperts, HaveTheBitsOfABlock) {
  for (const char* kind : {"silu", "gelu", "gpt_oss"}) {
    const LayerInputs in({}, kTokens);
    GatedActivation activation;
    if (kind == std::string("gelu")) activation.act = Activation::kGelu;
    if (kind == std::string("gpt_oss")) activation = {.alpha = 1.702f, .limit = 7, .up_offset = 1};
    CLayer layer(in, nullptr, kind);
    EXPECT_OK(layer.forward());
    EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
    layer.expect(by_rooms(Communicator::self(), in, activation), 0);
    EXPECT_EQ(ml_trip_rows(layer.trip), kTokens * in.shape.top_k);
  }
}

TEST(CExperts, TakeEveryFormat) {
  for (const Lie& lie : kLies)
    for (const Lie& weights : {Lie{ML_F32}, Lie{ML_BF16}, Lie{ML_F32, 0, 4}}) {
      const LayerInputs in = rounded(LayerInputs({}, kTokens), lie, weights);
      CLayer layer(in, nullptr, "silu", lie, weights);
      EXPECT_OK(layer.forward());
      EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
      const bool halves = lie.dtype == ML_BF16 && weights.dtype == ML_BF16 && cpu_has_bf16();
      layer.expect(by_rooms(Communicator::self(), in),
                   (halves ? 4 : 1) * std::max(rounding_of(lie.dtype), rounding_of(weights.dtype)));
    }
}

TEST(CExperts, ReadWeightsInF16AndDoNotTrainThem) {
  const LayerInputs in = rounded(LayerInputs({}, kTokens), {}, {ML_F16});
  CLayer layer(in, nullptr, "silu", {}, {ML_F16});
  EXPECT_OK(layer.forward());
  EXPECT_STATUS(layer.backward(layer.grads(ML_REPLACE)), ML_TYPE,
                "d_gate_up is ML_F16 and must be ML_F32 or ML_BF16");
  EXPECT_OK(layer.backward({sizeof(ml_expert_grads), nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0}));
  expect_near(layer.dx.numbers(), by_rooms(Communicator::self(), in).dx, 0, "dx");
}

TEST(CExperts, GradientsAreAddedReplacedOrLeftAlone) {
  const LayerInputs in({}, kTokens);
  const LayerNumbers once = by_rooms(Communicator::self(), in);
  CLayer layer(in, nullptr);
  ml_expert_grads grads = layer.grads(ML_REPLACE);
  const auto pass = [&] {
    EXPECT_OK(layer.forward());
    EXPECT_OK(layer.backward(grads));
    ml_trip_free(std::exchange(layer.trip, nullptr));
  };
  pass();
  grads.down_mode = ML_ADD;  // beside one that is replaced
  pass();
  Matrix twice = Matrix::copy_of(once.d_down);
  add(once.d_down, twice);
  expect_near(layer.d_gate_up.numbers(), once.d_gate_up, 0, "replaced");
  expect_near(layer.d_down.numbers(), twice, 1e-6, "added");
  grads.down = nullptr;
  grads.gate_up_mode = ML_ADD;
  pass();
  expect_near(layer.d_down.numbers(), twice, 1e-6, "frozen");
  Matrix gate_up = Matrix::copy_of(once.d_gate_up);
  add(once.d_gate_up, gate_up);
  expect_near(layer.d_gate_up.numbers(), gate_up, 1e-6, "added alone");
}

TEST(CExperts, TripsMayBeOutTogetherAndAreUsedUp) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_open(nullptr, &group));
  LayerInputs first({}, kTokens), second({.experts = 4, .hidden = 16, .inter = 7, .top_k = 3}, kTokens + 4);
  {
    CLayer a(first, group), b(second, group), c(first, group);
    EXPECT_OK(a.forward());
    EXPECT_OK(b.forward());
    EXPECT_OK(c.forward());
    EXPECT_OK(b.backward(b.grads(ML_REPLACE)));
    EXPECT_OK(a.backward(a.grads(ML_REPLACE)));
    b.expect(by_rooms(Communicator::self(), second), 0);
    a.expect(by_rooms(Communicator::self(), first), 0);
    EXPECT_STATUS(a.backward(a.grads(ML_REPLACE)), ML_SPENT, "a second backward of one forward");
    EXPECT_STATUS(ml_experts_backward(b.handle, nullptr, c.trip, b.dy, b.dx, nullptr, nullptr), ML_SHAPE,
                  "other experts");
    EXPECT_OK(ml_group_release(group));
    ml_group_close(std::exchange(group, nullptr));  // before those that were opened on it
    EXPECT_OK(c.backward(c.grads(ML_REPLACE)));
    c.expect(by_rooms(Communicator::self(), first), 0);
  }
}

TEST(CExperts, TokensMayChooseNoExpertOrBeAbsent) {
  LayerInputs in({}, kTokens);
  in.ids[0] = in.ids[1] = in.ids[5] = -1;  // one token without any
  const LayerNumbers expected = by_rooms(Communicator::self(), in);
  in.ids[1] = in.ids[5] = in.shape.experts;
  CLayer layer(in, nullptr);
  EXPECT_OK(layer.forward());
  EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
  layer.expect(expected, 0);
  CLayer none(LayerInputs({}, 0), nullptr);
  EXPECT_OK(none.forward());
  EXPECT_OK(none.backward(none.grads(ML_REPLACE)));
  expect_near(none.d_down.numbers(), zeros(none.d_down.numbers().rows(), none.shape.inter), 0, "d_down");
}

/// d(sum of dy y) / d(bias) by differences.
TEST(CExperts, HaveBiasesWithGradients) {
  const LayerInputs in({}, kTokens);
  const LayerShape& s = in.shape;
  CLayer layer(in, nullptr, "gpt_oss");
  Array gate_up_bias(random_matrix(s.experts, 2 * s.inter, 50)),
      down_bias(random_matrix(s.experts, s.hidden, 51));
  const Array d_gate_up_bias({s.experts, 2 * s.inter}), d_down_bias({s.experts, s.hidden});
  ml_expert_weights weights = layer.weights();
  weights.gate_up_bias = gate_up_bias;
  weights.down_bias = down_bias;
  ml_expert_grads grads = layer.grads(ML_REPLACE);
  grads.gate_up_bias = d_gate_up_bias;
  grads.down_bias = d_down_bias;
  const auto value = [&](ml_trip** trip) {
    EXPECT_OK(ml_experts_forward(layer.handle, &weights, layer.x, layer.topk_idx, layer.topk_weights, layer.y,
                                 trip));
    const Matrix y = layer.y.numbers(), dy = layer.dy.numbers();
    double sum = 0;
    for (Index i = 0; i < y.view().size(); ++i)
      sum += static_cast<double>(y.view().data[i]) * static_cast<double>(dy.view().data[i]);
    return sum;
  };
  value(&layer.trip);
  EXPECT_OK(ml_experts_backward(layer.handle, &weights, layer.trip, layer.dy, layer.dx, nullptr, &grads));
  const auto expect_slope = [&](Array& bias, const Array& gradient, Index place) {
    float* const number = static_cast<float*>(bias.get().data) + place;
    const float before = *number, step = 1e-2f;
    *number = before + step;
    const double above = value(nullptr);
    *number = before - step;
    const double below = value(nullptr);
    *number = before;
    EXPECT_NEAR((above - below) / (2 * static_cast<double>(step)),
                static_cast<double>(gradient.numbers().view().data[place]), 2e-3)
        << place;
  };
  for (const Index place : {0, 17, 53}) expect_slope(gate_up_bias, d_gate_up_bias, place);
  for (const Index place : {0, 30, 100}) expect_slope(down_bias, d_down_bias, place);
  const Array apart({s.experts, s.hidden}, {ML_F32, 3});
  grads.down_bias = apart;
  ml_trip_free(std::exchange(layer.trip, nullptr));
  EXPECT_OK(ml_experts_forward(layer.handle, &weights, layer.x, layer.topk_idx, layer.topk_weights, layer.y,
                               &layer.trip));
  EXPECT_STATUS(ml_experts_backward(layer.handle, &weights, layer.trip, layer.dy, layer.dx, nullptr, &grads),
                ML_SHAPE, "d_down_bias has gaps between its rows");
  weights.down_bias = nullptr;
  EXPECT_STATUS(ml_experts_forward(layer.handle, &weights, layer.x, layer.topk_idx, layer.topk_weights,
                                   layer.y, nullptr),
                ML_SHAPE, "both NULL");
}

TEST(CExperts, SayWhatDoesNotFit) {
  const LayerInputs in({}, kTokens);
  ml_experts* handle = nullptr;
  ml_experts_settings settings{sizeof(ml_experts_settings), 0, 0, nullptr, nullptr, 0, 0};
  EXPECT_STATUS(ml_experts_open(nullptr, &settings, &handle), ML_SHAPE, "num_experts");
  settings.num_experts = 4;
  settings.pretended_nodes = -1;
  EXPECT_STATUS(ml_experts_open(nullptr, &settings, &handle), ML_SHAPE, "pretended_nodes");
  settings.pretended_nodes = std::numeric_limits<Index>::max();  // as many as there are ranks
  EXPECT_OK(ml_experts_open(nullptr, &settings, &handle));
  ml_experts_close(handle);
  settings.dispatcher = "pigeon";
  EXPECT_STATUS(ml_experts_open(nullptr, &settings, &handle), ML_CONFIG, "unknown dispatcher \"pigeon\"");
  EXPECT_EQ(handle, nullptr);
  CLayer layer(in, nullptr), gaps(in, nullptr, "silu", {}, {ML_BF16, 2}),
      odd(in, nullptr, "silu", {}, {ML_F32, 0, 1});
  EXPECT_STATUS(gaps.forward(), ML_SHAPE, "stack without gaps");
  EXPECT_STATUS(odd.forward(), ML_SHAPE, "stack without gaps");
  EXPECT_STATUS(layer.backward(layer.grads(ML_REPLACE)), ML_SHAPE, "trip is NULL");
  ml_expert_weights weights = layer.weights();
  const Array no_gate_up({6, 20, 0}), no_down({6, 0, 10});
  weights.gate_up = no_gate_up, weights.down = no_down;
  EXPECT_STATUS(ml_experts_forward(layer.handle, &weights, Array({kTokens, 0}), layer.topk_idx,
                                   layer.topk_weights, Array({kTokens, 0}), &layer.trip),
                ML_SHAPE, "D = 0 and F = 10 must be at least 1");
  const Array no_inter({6, 0, 24}), no_columns({6, 24, 0});
  weights.gate_up = no_inter, weights.down = no_columns;
  EXPECT_STATUS(ml_experts_forward(layer.handle, &weights, layer.x, layer.topk_idx, layer.topk_weights,
                                   layer.y, &layer.trip),
                ML_SHAPE, "D = 24 and F = 0 must be at least 1");
  weights = layer.weights();
  weights.gate_up = layer.down;
  EXPECT_STATUS(ml_experts_forward(layer.handle, &weights, layer.x, layer.topk_idx, layer.topk_weights,
                                   layer.y, nullptr),
                ML_SHAPE, "gate_up is [6, 24, 10] and must be [6, 20, 24]");
  const Array far = Array::integers(std::vector<Index>(kTokens * 2, 7), {kTokens, 2});
  weights = layer.weights();
  EXPECT_STATUS(
      ml_experts_forward(layer.handle, &weights, layer.x, far, layer.topk_weights, layer.y, nullptr),
      ML_SHAPE, "expert 7");
}

}  // namespace
}  // namespace moeloom
