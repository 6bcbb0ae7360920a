#include "plan/memory/row_budget.hpp"

#include "made_up_job.hpp"
#include <gtest/gtest.h>

// That a run under such a budget holds no more is measured in tests/app/program/memory_command_test.cpp.
namespace moeloom {
namespace {

constexpr double kRow = 100, kBeside = 5000;

/// kBeside, and kRow for each row; where the layer is sliced 300 more.
MemoryNeed linear(Index rows, const RowRange& range) {
  MemoryNeed need;
  need.buffers = kBeside + kRow * static_cast<double>(rows) + (rows < range.most ? 300 : 0);
  return need;
}

TEST(RowBudget, IsTheMostRowsThatTheCeilingLeavesRoomFor) {
  const RowRange range{.least = 4, .balanced = 40, .most = 80};
  struct Case {
    double ceiling;
    Index rows;  // 0: as many as come
    bool fits;
  };
  for (const auto& [ceiling, rows, fits] : {Case{13000, 0, true},   // all 80, unsliced
                                            Case{12999, 76, true},  // sliced ones ask for 300 more
                                            Case{9300, 40, true},   // the balanced ones
                                            Case{9299, 39, true},   // a byte less is a row less
                                            Case{5700, 4, true},    // the smallest slices
                                            Case{5699, 4, false},   // no slice is small enough
                                            Case{0, 4, false}}) {
    SCOPED_TRACE(ceiling);
    const RowRoom room = row_room(ceiling, range, [&](Index n) { return linear(n, range); });
    EXPECT_EQ(room.rows, rows);
    EXPECT_EQ(room.fits(), fits);
    EXPECT_EQ(room.memory.total(), linear(rows == 0 ? range.most : rows, range).total());
  }
}

TEST(RowBudget, AModelWithoutExpertsFitsOrDoesNot) {
  const auto need = [](Index rows) { return linear(rows, {}); };
  EXPECT_TRUE(row_room(kBeside, {}, need).fits());
  EXPECT_EQ(row_room(kBeside, {}, need).rows, 0);
  EXPECT_FALSE(row_room(kBeside - 1, {}, need).fits());
}

TEST(RowBudget, RowsRangeFromOneTokenOfEachRankToEveryTokenOfAllWithAllItsExperts) {
  struct Case {
    Index experts, top_k, ep;
    RowRange range;
  };
  for (const auto& [experts, top_k, ep, range] : {Case{8, 2, 1, {2, 20, 20}}, Case{8, 2, 4, {8, 20, 80}},
                                                  Case{8, 4, 4, {8, 40, 80}},  // 2 experts a rank
                                                  Case{8, 4, 3, {9, 40, 90}},  // 3 at the most
                                                  Case{8, 8, 8, {8, 80, 80}}, Case{0, 0, 1, {0, 0, 0}}}) {
    SCOPED_TRACE(std::to_string(experts) + " experts, top " + std::to_string(top_k) + ", ep " +
                 std::to_string(ep));
    ModelConfig config;
    config.num_experts = experts;
    config.num_experts_per_tok = top_k;
    const RowRange found =
        row_range(config, {.batch = {.sequences = ep, .length = 10}, .layout = {.mesh = {.ep = ep}}});
    EXPECT_EQ(found.least, range.least);
    EXPECT_EQ(found.balanced, range.balanced);
    EXPECT_EQ(found.most, range.most);
  }
}

TEST(RowBudget, NeedGrowsWithRowsOfEveryWayAndTheWholeLayerIsThatOfSteps) {
  const PlannedJob planned = testing::made_up_job(4, 4);
  Job job = job_at(planned, 4);
  const auto specs = parameters_at(planned, 4);
  const RowRange range = row_range(planned.config, job);
  for (const DispatcherKind kind : kDispatcherKinds) {
    job.exchange.dispatcher = kind;
    const auto need = [&](Index rows) {
      return memory_of_rows(planned.config, specs, job, false, DType::kF32, rows).total();
    };
    double before = 0;
    for (Index rows = range.least; rows < range.most; rows += (range.most - range.least) / 7) {
      EXPECT_GE(need(rows), before) << name_of(kind) << ' ' << rows;
      before = need(rows);
    }
    const auto whole = training_memory(planned.config, specs, job, {.at_once = range.most}, false);
    EXPECT_EQ(need(range.most), whole.total()) << name_of(kind);
    EXPECT_LT(need(range.least), whole.total()) << name_of(kind);
  }
}

TEST(RowBudget, ExactSumsTakeAsMuchAsInPredictedSteps) {
  const PlannedJob planned = testing::made_up_job(4, 4);
  Job job = job_at(planned, 4);
  const auto specs = parameters_at(planned, 4);
  const auto of_rows = [&] {
    return memory_of_rows(planned.config, specs, job, false, DType::kF32, row_range(planned.config, job).most)
        .total();
  };
  const auto of_step = [&] { return step_memory(planned.config, specs, job, false, DType::kF32).total(); };
  const double rows = of_rows(), predicted = of_step();
  job.batch.exact = 1;
  EXPECT_GT(of_step(), predicted);
  EXPECT_EQ(of_rows() - rows, of_step() - predicted);
}

}  // namespace
}  // namespace moeloom
