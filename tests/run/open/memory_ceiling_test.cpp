#include "open/memory_ceiling.hpp"

#include "moeloom/base/errors.hpp"
#include "plan/made_up_job.hpp"

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;

struct Asked {
  PlannedJob planned = testing::made_up_job(2, 2);
  RunFacts facts;
  RunDecision decision;

  Asked() {
    planned.job.batch.sequences = 32;
    facts = facts_at(planned, job_at(planned, 2));
    facts.program_bytes = 50e6;
    decision = decide(facts, {});
  }
  double without_program() const { return decision.memory.total() - facts.program_bytes; }
};

TEST(MemoryCeiling, ARankThatTheMachineHasRoomForIsNotRefused) {
  const Asked asked;
  EXPECT_NO_THROW(require_within_node(asked.facts, asked.decision, {}, asked.without_program()));
}

TEST(MemoryCeiling, WhatTheMachineHasNoRoomForIsRefusedWithWhatWouldHelp) {
  const Asked asked;
  try {
    require_within_node(asked.facts, asked.decision, {}, 0.9 * asked.without_program());
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* said : {"left for each rank, less than the ", "  activations  ", "  program and MPI  ",
                             "changed alone, ", "  `recompute` experts: -", "  `accumulate` 2: -",
                             "the cheapest change that fits", "is enough as it is"})
      EXPECT_EQ(count_of(text, said), 1u) << said << " in\n" << text;
  }
}

TEST(MemoryCeiling, TheTableNamesAllThatIsCounted) {
  MemoryNeed need;
  need.dense_weights = need.dense_gradients = need.expert_weights = need.expert_gradients = need.moments =
      1e9;
  need.exact_sums = need.packed = need.activations = need.buffers = need.replicas = 1e9;
  need.save_copy = need.data = need.program = 1e9;
  const std::string table = memory_table(need);
  EXPECT_EQ(count_of(table, "  exact sums        "), 1u) << table;
  EXPECT_EQ(static_cast<double>(count_of(table, "\n")), need.total() / 1e9) << table;
}

TEST(MemoryCeiling, TheCopyForSavesIsNoReasonToRefuse) {
  Asked asked;
  asked.decision.memory.save_copy = 1e12;
  const double room = asked.without_program() - 1e12;
  EXPECT_NO_THROW(require_within_node(asked.facts, asked.decision, {}, room));
}

TEST(MemoryCeiling, APeakStandsBesideWhatItsRowsWereToTake) {
  Asked asked;
  asked.decision.memory = {};
  asked.decision.memory.program = 100 << 20;
  asked.decision.most_memory = 200 << 20;
  const auto said = [&](Index rows) {
    const MemoryPeak peak{
        .bytes = 150 << 20, .rows = rows, .range = {.least = 1, .balanced = 40, .most = 80}};
    return peak_event(peak, asked.decision).text();
  };
  EXPECT_EQ(count_of(said(40), "predicted=\"100 MiB\""), 1u) << said(40);
  EXPECT_EQ(count_of(said(60), "predicted=\"150 MiB\" share=1 "), 1u) << said(60);
  EXPECT_EQ(count_of(said(80), "predicted=\"200 MiB\""), 1u) << said(80);
  EXPECT_EQ(count_of(said(10), "predicted=\"100 MiB\""), 1u) << "fewer rows than even ones on every rank";
}

}  // namespace
}  // namespace moeloom
