// Calls of several ranks that differ, or that a rank does not come to: an error on all of them, and no wait
// for ever.
#include <chrono>
#include <cstdint>

#include "world.hpp"

namespace moeloom {
namespace {

using namespace testing;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of a world with several ranks; the last is the odd one.
class Door : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world.size() < 2) GTEST_SKIP() << "needs 2 ranks";
    EXPECT_OK(ml_group_set_timeout(world.group, 60));
  }
  bool is_odd() const { return world.rank() == world.size() - 1; }
  std::string odd() const { return "rank " + std::to_string(world.size() - 1); }
  World world;
};

TEST_F(Door, CallsThatDifferAreAnErrorOnAllRanks) {
  EXPECT_OK(ml_group_barrier(world.group));
  const char* call = is_odd() ? "saving" : "finish_gradients";
  const ml_status status = ml_group_enter(world.group, call, nullptr);
  EXPECT_STATUS(status, ML_MPI, "ranks do not make the same calls: rank");
  const std::string text = ml_last_error();
  EXPECT_NE(text.find(odd() + " is in saving (call 2); every rank makes as many"), std::string::npos) << text;
  EXPECT_NE(text.find("in finish_gradients (call 2), "), std::string::npos) << text;
  EXPECT_STATUS(ml_group_barrier(world.group), ML_MPI, "in saving (call 2)");  // and ever after
}

TEST_F(Door, AForwardMeetsABackwardAndAnotherLayer) {
  const LayerInputs in({}, 4, world.size(), world.rank());
  {
    CLayer layer(in, world.group);
    EXPECT_OK(layer.forward());
    const ml_status status = is_odd() ? layer.backward(layer.grads(ML_REPLACE)) : layer.forward();
    EXPECT_STATUS(status, ML_MPI, "the forward of layer 0 (call");
    EXPECT_NE(std::string(ml_last_error()).find(odd() + " is in the backward of layer 0"), std::string::npos);
  }
  const World again;
  CLayer layer(in, again.group, "silu", {}, {}, is_odd() ? 4 : 3);
  EXPECT_STATUS(layer.forward(), ML_MPI, "in the forward of layer 4");
}

TEST_F(Door, ACallOfTheWorldMeetsALayerOfTheRow) {
  ml_group *row = nullptr, *column = nullptr;
  EXPECT_OK(ml_group_mesh(world.group, world.size(), &row, &column));
  const LayerInputs in({}, 4, world.size(), world.rank());
  {
    CLayer layer(in, row);
    float number = 1;
    const ml_array array{&number, {1}, {1}, 1, ML_F32};
    const ml_array* arrays[] = {&array};
    EXPECT_OK(ml_group_sum(world.group, arrays, 1, 1));
    const ml_status status = is_odd() ? ml_group_sum(world.group, arrays, 1, 1) : layer.forward();
    EXPECT_STATUS(status, ML_MPI, "in the forward of layer 0");
    EXPECT_NE(std::string(ml_last_error()).find(odd() + " is in a sum (call"), std::string::npos)
        << ml_last_error();
  }
  ml_group_close(row);
  ml_group_close(column);
}

TEST_F(Door, SumsOfOtherSizesAreRefused) {
  std::vector<float> numbers(5);
  const ml_array array{numbers.data(), {is_odd() ? 5 : 4}, {1}, 1, ML_F32};
  const ml_array* arrays[] = {&array};
  EXPECT_STATUS(ml_group_sum(world.group, arrays, 1, 1), ML_MPI, "in a sum of 5 numbers in 1 arrays, ");
}

TEST_F(Door, SumsOfTheSameNumbersOtherwiseDividedAreRefused) {
  std::vector<double> numbers(3 * (1 << 16));
  const auto array_of = [&](Index size, std::int32_t dtype = ML_F32) {
    return ml_array{numbers.data(), {size}, {1}, 1, dtype};
  };
  const ml_array small = array_of(1 << 16), large = array_of(2 << 16), doubles = array_of(1 << 16, ML_F64);
  const ml_array* one[] = {&small, &large};
  for (const ml_array* other : {&large, &doubles}) {
    const World again;
    const ml_array* another[] = {other, other == &large ? &small : &large};
    EXPECT_STATUS(ml_group_sum(again.group, is_odd() ? another : one, 2, 1), ML_MPI,
                  "in a sum of 196608 numbers in 2 arrays, ");
  }
}

TEST_F(Door, NoArraysAreAnErrorOnAllRanks) {
  EXPECT_STATUS(ml_group_sum(world.group, nullptr, is_odd() ? 1 : 0, 1), ML_SHAPE, "arrays is NULL");
  EXPECT_STATUS(ml_group_sum(world.group, nullptr, is_odd() ? -1 : 0, 1), ML_SHAPE, "-1 arrays");
  EXPECT_OK(ml_group_barrier(world.group));
}

TEST_F(Door, WhatOneRankAskedOtherwiseIsAnErrorOnAll) {
  const ml_glu_settings glu{sizeof(ml_glu_settings), "silu", is_odd() ? 1.5f : 0.0f, 0};
  ml_experts_settings settings{sizeof(ml_experts_settings), 4, 0, &glu, nullptr, 0, 0};
  ml_experts* experts = nullptr;
  EXPECT_STATUS(ml_experts_open(world.group, &settings, &experts), ML_SHAPE, "sparsity must be");
  settings.glu = nullptr;
  EXPECT_OK(ml_experts_open(world.group, &settings, &experts));
  ml_experts_close(experts);
  settings.pretended_nodes = is_odd() ? 2 : 0;
  EXPECT_STATUS(ml_experts_open(world.group, &settings, &experts), ML_MPI, " of 4 by auto/0 on 2");
}

TEST_F(Door, AHandleThatIsMissingOnOneRankIsAnErrorOnAll) {
  const LayerInputs in({}, 4, world.size(), world.rank());
  CLayer layer(in, world.group);
  ml_group *row = nullptr, *column = nullptr;
  ml_trip* trip = nullptr;
  const auto unless_odd = [&](auto* value) { return is_odd() ? nullptr : value; };
  EXPECT_STATUS(ml_group_mesh(world.group, 1, &row, unless_odd(&column)), ML_SHAPE, "dp_column");
  EXPECT_EQ(row, nullptr);
  EXPECT_STATUS(ml_dispatch_plan(layer.handle, layer.topk_idx, unless_odd(&trip)), ML_SHAPE, "trip");
  const ml_experts_settings settings{sizeof(ml_experts_settings), 4, 0, nullptr, nullptr, 0, 0};
  ml_experts* experts = nullptr;
  EXPECT_STATUS(ml_experts_open(world.group, &settings, unless_odd(&experts)), ML_SHAPE, "experts");
  EXPECT_EQ(experts, nullptr);
  EXPECT_OK(ml_dispatch_plan(layer.handle, layer.topk_idx, &trip));
  const Array rows({ml_trip_rows(trip), layer.shape.hidden});
  EXPECT_STATUS(ml_dispatch(layer.handle, unless_odd(trip), layer.x, nullptr, rows, nullptr), ML_SHAPE,
                "trip");
  EXPECT_STATUS(ml_combine(layer.handle, unless_odd(trip), rows, nullptr, nullptr, layer.y, nullptr),
                ML_SHAPE, "trip");
  ml_trip_free(trip);
  EXPECT_OK(layer.forward());
  const ml_expert_weights weights = layer.weights();
  EXPECT_STATUS(ml_experts_backward(layer.handle, &weights, unless_odd(layer.trip), layer.dy, layer.dx,
                                    nullptr, nullptr),
                ML_SHAPE, "trip");
  EXPECT_STATUS(ml_group_enter(world.group, unless_odd("a step"), nullptr), ML_MPI, "without a name");
}

TEST_F(Door, AnIntermediateSizeThatIsAnotherInTheBackwardIsAnErrorOnAll) {
  const LayerInputs in({}, 4, world.size(), world.rank());
  CLayer layer(in, world.group);
  EXPECT_OK(layer.forward());
  const ExpertRange held = in.held;
  const Index inter = layer.shape.inter + (is_odd() ? 1 : 0);
  const Array gate_up({held.count, 2 * inter, layer.shape.hidden}),
      down({held.count, layer.shape.hidden, inter});
  const ml_expert_weights weights{sizeof(ml_expert_weights), gate_up, down, nullptr, nullptr};
  EXPECT_STATUS(ml_experts_backward(layer.handle, &weights, layer.trip, layer.dy, layer.dx, nullptr, nullptr),
                ML_SHAPE, "another D or F than in the forward");
}

TEST_F(Door, BackwardsOfTwoForwardsInAnotherOrderAreRefused) {
  const LayerInputs in({}, 4, world.size(), world.rank());
  CLayer first(in, world.group), second(in, world.group);
  EXPECT_OK(first.forward());
  EXPECT_OK(second.forward());
  CLayer& mine = is_odd() ? second : first;
  EXPECT_STATUS(mine.backward(mine.grads(ML_REPLACE)), ML_MPI,
                odd() + " is in the backward of layer 0 of forward 2 (call");
  EXPECT_STATUS(second.forward(), ML_MPI, "of forward 2");
}

TEST_F(Door, LayersOfOtherWidthsAreRefused) {
  LayerShape shape;
  if (is_odd()) shape.hidden = 16;
  const LayerInputs in(shape, 4, world.size(), world.rank());
  CLayer layer(in, world.group);
  EXPECT_STATUS(layer.forward(), ML_MPI, odd() + " is in the forward of layer 0, D = 16, F = 10 (call");
}

TEST_F(Door, AnEndedProgramIsNamed) {
  const ml_status status = ml_group_enter(world.group, is_odd() ? "the end of the program" : "on", nullptr);
  EXPECT_STATUS(status, ML_MPI, odd() + " has ended its program; its own error stands above");
}

TEST_F(Door, AnErrorIsToldEvenWhereItsCallHasNoSize) {
  float number = 1;
  const ml_array array{&number, {1}, {1}, 1, is_odd() ? ML_I64 : ML_F32};
  const ml_array* arrays[] = {&array};
  EXPECT_STATUS(ml_group_sum(world.group, arrays, 1, 1), ML_TYPE, "is ML_I64");
  EXPECT_OK(ml_group_barrier(world.group));
}

TEST_F(Door, WhoDoesNotComeIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_OK(ml_group_set_timeout(world.group, 3));
  const Communicator ranks = Communicator::world().split(0, world.rank());
  if (!is_odd()) {
    EXPECT_STATUS(ml_group_enter(world.group, "the end", nullptr), ML_MPI,
                  (" waited 3 s in the end for " + odd() + ", which did not come").c_str());
    EXPECT_NE(std::string(ml_last_error()).find(" of " + std::to_string(world.size()) + " ("),
              std::string::npos);
    EXPECT_GE(seconds_since(begin), 3);
    EXPECT_LT(seconds_since(begin), 200);
    EXPECT_STATUS(ml_group_barrier(world.group), ML_MPI, "which did not come");
  }
  ranks.barrier();
}

TEST_F(Door, RowsAreNamedByTheWholesNumbers) {
  if (world.size() != 4) GTEST_SKIP() << "needs 4 ranks";
  ml_group *row = nullptr, *column = nullptr;
  EXPECT_OK(ml_group_mesh(world.group, 2, &row, &column));
  if (world.rank() >= 2) {
    const char* call = is_odd() ? "one" : "another";
    EXPECT_STATUS(ml_group_enter(row, call, nullptr), ML_MPI,
                  "rank 2 is in another (call 1), rank 3 is in one");
    EXPECT_STATUS(ml_group_agree(column, ""), ML_MPI, "rank 2 is in another");  // by way of the row
  }
  ml_group_close(row);
  ml_group_close(column);
}

TEST_F(Door, ALimitIsANumberOfSeconds) {
  EXPECT_STATUS(ml_group_set_timeout(world.group, -1), ML_SHAPE, "a number of seconds");
}

}  // namespace
}  // namespace moeloom
