// One rank by itself. What replicas change: rebalanced_experts_test.
#include "moe/experts/expert_runner.hpp"

#include "dispatch/dropped_slots.hpp"
#include "dispatch/trips.hpp"
#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kExperts = 4, kTokens = 9, kTopK = 2, kHidden = 12, kInter = 8;

/// One rank's experts in the memory that its dispatcher wants them in, and a forward of its tokens.
struct ForwardPass {
  Communicator alone = Communicator::self();
  DispatcherSettings settings;
  Dispatcher dispatcher;
  ExpertRunner experts;
  RowBuffer gate_up, down;
  PackedExperts packed;
  ExpertActivations saved;
  ExpertWorkspace workspace;
  PhaseClock clock;
  Matrix sums{kTokens, kHidden};

  explicit ForwardPass(const DispatcherSettings& s, testing::Drops drops = testing::Drops::kNone)
      : settings(s),
        dispatcher(alone, kExperts, settings),
        experts(settings),
        gate_up(weights(random_matrix(kExperts * 2 * kInter, kHidden, 1))),
        down(weights(random_matrix(kExperts * kHidden, kInter, 2))) {
    KernelTable kernels = testing::block_kernels(true);
    kernels.grouped_matmul.uses_packed = true;
    const ExpertShard shard{kExperts, gate_up, down, {}, {}};
    DispatchPlan plan;
    dispatcher.plan(
        testing::dropped(testing::random_choices(kTokens, kTopK, kExperts, 3), kTopK, drops, 1, true, 3),
        kTopK, plan);
    const Matrix tokens = random_matrix(kTokens, kHidden, 4);
    const std::vector<float> weights_of_slots(at(plan.slots()), 0.5f);
    const RoundTrip trip{.plan = plan,
                         .tokens = tokens,
                         .rows = saved.rows,
                         .scalars_out = ScalarsOut{weights_of_slots, saved.weights},
                         .results = workspace.output,
                         .sums = sums};
    RebalanceCounts counts;
    dispatcher.begin(trip);
    packed.refresh(kernels.grouped_matmul, shard, 1);
    experts.forward({kernels, shard, packed, plan.grouped_rows(), saved, workspace, clock}, dispatcher, trip,
                    counts);
    dispatcher.finish(trip);
  }
  RowBuffer weights(const Matrix& values) const {
    RowBuffer rows(settings.weights_memory());
    rows.reshape_uninitialised(values.rows(), values.cols());
    copy(values, rows);
    return rows;
  }
};

TEST(ExpertRunner, HasTheSameBitsInChunksAndWhereNobodyIsLeftToTakeARow) {
  const Communicator alone = Communicator::self();
  for (const testing::Drops drops : testing::kDrops) {
    DispatcherSettings shared = open_dispatcher(DispatcherKind::kShared, alone, kExperts);
    const ForwardPass own({}, drops), in_chunks({.chunks = 3}, drops), in_memory(shared, drops);
    shared.rebalance = RebalanceRates{.row_products = 3000, .on_node = {}, .between_nodes = {}};
    const ForwardPass rebalanced(shared, drops);
    for (const ForwardPass* other : {&in_chunks, &in_memory, &rebalanced})
      EXPECT_TRUE(std::ranges::equal(other->sums.view().flat(), own.sums.view().flat()));
    const bool nothing_left = drops == testing::Drops::kRank;
    EXPECT_EQ(std::ranges::all_of(own.sums.view().flat(), [](float x) { return x == 0; }), nothing_left);
    EXPECT_GT(own.packed.packings(), 0);
  }
}

}  // namespace
}  // namespace moeloom
