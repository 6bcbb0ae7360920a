#include "moeloom/moe/experts/pool_board.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Kind = PoolTask::Kind;

std::vector<PoolTask> listed(const GroupedRows& rows, const PoolWork& work) {
  std::vector<PoolTask> tasks = {{.expert = 77}};  // of an earlier pass
  list_pool_tasks(rows, work, tasks);
  return tasks;
}

/// Three experts from two sources: 3 rows, none, 900.
const std::vector<Index> kCounts = {1, 2, 0, 0, 600, 300};
const GroupedRows kRows{kCounts, 2};

TEST(PoolTasks, BlocksHoldEachRowOnceLargestExpertFirst) {
  const std::vector<PoolTask> tasks = listed(kRows, {});
  std::vector<std::vector<Index>> blocks;
  for (const PoolTask& task : tasks) {
    EXPECT_EQ(task.kind, Kind::kBlock);
    blocks.push_back({task.expert, task.row, task.rows, task.blocks});
  }
  EXPECT_EQ(blocks, (std::vector<std::vector<Index>>{
                        {2, 3, 256, 4}, {2, 259, 256, 4}, {2, 515, 256, 4}, {2, 771, 132, 4}, {0, 0, 3, 1}}));
}

TEST(PoolTasks, PanelsFollowAllBlocksAndCutColumnsAtMultiplesAsOftenAsRowsPay) {
  const PoolWork work{.gate_up_panels = true, .down_panels = true, .hidden = 700, .inter = 2000};
  const std::vector<PoolTask> tasks = listed(kRows, work);
  bool panels = false;
  std::map<std::pair<Kind, Index>, std::vector<std::pair<Index, Index>>> columns;
  for (const PoolTask& task : tasks) {
    if (task.kind == Kind::kBlock) {
      EXPECT_FALSE(panels) << "a block after a panel could be waited for by whoever would run it";
      continue;
    }
    panels = true;
    EXPECT_EQ(task.row, task.expert == 2 ? 3 : 0);
    EXPECT_EQ(task.rows, task.expert == 2 ? 900 : 3) << "a panel sums over all rows of its expert";
    columns[{task.kind, task.expert}].emplace_back(task.column, task.cols);
  }
  using Cuts = std::vector<std::pair<Index, Index>>;
  EXPECT_EQ((columns[{Kind::kGateUpPanel, 2}]), (Cuts{{0, 256}, {256, 256}, {512, 188}}));
  EXPECT_EQ((columns[{Kind::kDownPanel, 2}]), (Cuts{{0, 512}, {512, 512}, {1024, 512}, {1536, 464}}));
  EXPECT_EQ((columns[{Kind::kGateUpPanel, 0}]), (Cuts{{0, 700}})) << "3 rows do not pay for a second panel";
  EXPECT_EQ((columns[{Kind::kDownPanel, 0}]), (Cuts{{0, 2000}}));
  EXPECT_EQ(columns.size(), 4u) << "an expert without rows adds nothing to its gradient";
}

TEST(PoolTasks, PanelsOfEmptyExpertsAndOfOneWeightAloneAreListedWhereAsked) {
  const PoolWork zeros{.down_panels = true, .hidden = 5, .inter = 7, .gradients_of_empty_experts = true};
  std::set<Index> experts;
  for (const PoolTask& task : listed(kRows, zeros))
    if (task.kind != Kind::kBlock) {
      EXPECT_EQ(task.kind, Kind::kDownPanel);
      experts.insert(task.expert);
    }
  EXPECT_EQ(experts, (std::set<Index>{0, 1, 2}));
  EXPECT_TRUE(listed({{}, 2}, zeros).empty()) << "a rank without experts";
}

TEST(PoolTasks, FactorsOfAnExpertAreOneTaskAProductBetweenItsBlocksAndItsPanels) {
  const PoolWork work{.gate_up_factors = true, .down_factors = true, .down_panels = true, .inter = 700};
  std::vector<std::pair<Kind, Index>> gradients;
  for (const PoolTask& task : listed(kRows, work)) {
    if (task.kind == Kind::kBlock) {
      EXPECT_TRUE(gradients.empty());
      continue;
    }
    gradients.emplace_back(task.kind, task.expert);
    EXPECT_EQ(task.rows, task.expert == 2 ? 900 : 3);
    EXPECT_EQ(task.blocks, task.expert == 2 ? 4 : 1);
  }
  using Gradients = std::vector<std::pair<Kind, Index>>;
  EXPECT_EQ(gradients, (Gradients{{Kind::kGateUpFactors, 2},
                                  {Kind::kDownFactors, 2},
                                  {Kind::kDownPanel, 2},
                                  {Kind::kDownPanel, 2},
                                  {Kind::kDownPanel, 2},
                                  {Kind::kGateUpFactors, 0},
                                  {Kind::kDownFactors, 0},
                                  {Kind::kDownPanel, 0}}));
}

std::shared_ptr<NodeMemory> memory_of_world() {
  return std::make_shared<NodeMemory>(Communicator::world().split_by_node(), PoolBoard::mailbox_bytes());
}

/// Rank r lists 40 (r + 1) tasks; each writes who it is into its owner's memory.
TEST(PoolBoard, EveryTaskOfEveryRankIsTakenOnceWhateverRaceThereIs) {
  const auto memory = memory_of_world();
  PoolBoard board(memory);
  RowBuffer marks;
  for (Index round = 0; round < 30; ++round) {
    const Index mine = 40 * (memory->rank() + 1) - round;  // boards come and go in size
    marks.reshape_in(memory, mine, 1);
    fill(marks, -1.0f);
    std::vector<PoolTask> tasks(at(mine));
    for (Index i = 0; i < mine; ++i) tasks[at(i)].row = i;
    const std::vector<Index> counts(2, mine);
    board.open(tasks, {counts, 1}, {.rows = marks.offset()});
    ASSERT_EQ(board.owners(), memory->size());
    std::vector<Index> taken(at(board.owners()));
    for (int owner = 0; owner < board.owners(); ++owner)
      while (const auto task = board.take(owner)) {
        float& mark = board.at_place<float>(owner, board.places(owner).rows)[task->row];
        EXPECT_EQ(mark, -1.0f) << "taken twice";
        mark = static_cast<float>(memory->rank());
        ++taken[at(owner)];
      }
    board.close();
    for (Index i = 0; i < mine; ++i) ASSERT_GE(marks.view().data[i], 0.0f) << "never taken";
    std::vector<Index> all = taken;
    Communicator::world().all_sum(std::span(all));
    for (int owner = 0; owner < board.owners(); ++owner) EXPECT_EQ(all[at(owner)], 40 * (owner + 1) - round);
  }
}

TEST(PoolBoard, ShowsEachRanksRowsBySourceAndWhereTheyLie) {
  const auto memory = memory_of_world();
  PoolBoard board(memory);
  const auto counts_of = [](int rank) { return std::vector<Index>{rank, 2 * rank, 3 * rank, 4 * rank}; };
  const std::vector<Index> mine = counts_of(memory->rank());
  board.open({}, {mine, 2}, {.gate_up = {100 + memory->rank(), DType::kF16}, .d_weights = 7});
  for (int owner = 0; owner < board.owners(); ++owner) {
    EXPECT_FALSE(board.take(owner)) << "there are no tasks";
    EXPECT_EQ(board.places(owner).gate_up.offset, 100 + owner);
    EXPECT_EQ(board.places(owner).gate_up.type, DType::kF16);
    EXPECT_EQ(board.places(owner).d_weights, 7);
    const GroupedRows second = board.rows_of(owner, 1);
    EXPECT_EQ(second.groups(), 1);
    EXPECT_EQ(second.of_source(0, 0), 3 * owner);
    EXPECT_EQ(second.of_source(0, 1), 4 * owner);
  }
  board.close();
}

/// Rank 0 does the blocks late; whoever waits for them sees what they wrote.
TEST(PoolBoard, APanelWaitsForTheBlocksOfItsExpertWhoeverRunsThem) {
  const auto memory = memory_of_world();
  PoolBoard board(memory);
  RowBuffer written;
  written.reshape_in(memory, 1, 1);
  constexpr Index kBlocks = 3;
  const std::vector<Index> counts = {0, kBlocks * kGemmRows};
  for (int round = 0; round < 50; ++round) {
    fill(written, 0.0f);
    board.open({}, {counts, 1}, {.rows = written.offset()});
    if (memory->rank() == 0)
      for (int owner = 0; owner < board.owners(); ++owner)
        for (Index block = 0; block < kBlocks; ++block) {
          *board.at_place<float>(owner, board.places(owner).rows) += 1;
          board.block_is_done(owner, 1);
        }
    for (int owner = 0; owner < board.owners(); ++owner) {
      board.wait_for_blocks(owner, {.expert = 1, .blocks = kBlocks});
      EXPECT_EQ(*board.at_place<float>(owner, board.places(owner).rows), kBlocks);
      board.wait_for_blocks(owner, {.expert = 0, .blocks = 0});
    }
    board.close();
  }
}

TEST(PoolBoard, NeedsTheMemoryOfANode) {
  EXPECT_THROW(PoolBoard(nullptr), ShapeError);
}

}  // namespace
}  // namespace moeloom
