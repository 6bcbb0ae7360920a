// `moeloom train --rebalance`, whole commands.

#include <optional>

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class RebalanceCommand : public testing::ProgramTest {
 protected:
  std::string weights(const std::string& run) const {
    return testing::read_bytes(path(run) + "/checkpoint-4/model.safetensors");
  }
  /// Of all steps; none: some step says nothing of rebalancing.
  std::optional<RebalanceMetrics> rebalanced(const std::string& run) const {
    RebalanceMetrics all;
    for (const StepMetrics& step : read_metrics(path(run) + "/metrics.jsonl")) {
      if (!step.rebalance) return std::nullopt;
      all.made += step.rebalance->made;
      all.replicas += step.rebalance->replicas;
      all.rows_moved += step.rebalance->rows_moved;
      all.weight_bytes += step.rebalance->weight_bytes;
    }
    return all;
  }
};

TEST_F(RebalanceCommand, TrainsTheSameLossesAndCheckpointAndSaysWhatItMoved) {
  // A network on which weights cost next to nothing, so that micro-batches do rebalance.
  const std::string two_nodes = "MOELOOM_PRETEND_NODES=2 ";
  const std::string free_net = " --net 100000Gbit,1us";
  const std::string steps = "--ep 2 --steps 4 --gmm-rule auto --run ";  // the loop may change last bits
  ASSERT_EQ(shell(two_nodes + train(2, steps + path("own"))).exit_code, 0);
  EXPECT_FALSE(rebalanced("own"));
  for (const char* way : {"alltoall", "hierarchical"}) {
    const Outcome run =
        shell(two_nodes + train(2, steps + path(way) + " --rebalance --dispatcher " + way + free_net));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, "rebalance=yes"), 1u) << run.output;
    EXPECT_EQ(losses(way), losses("own")) << way;
    EXPECT_EQ(weights(way), weights("own")) << way;
    const auto all = rebalanced(way);
    ASSERT_TRUE(all);
    EXPECT_GT(all->replicas, 0);
    EXPECT_GT(all->rows_moved, 0);
    EXPECT_GT(all->weight_bytes, 0);
    const std::string report = testing::read_bytes(path(way) + "/report.html");
    EXPECT_NE(report.find("layers of micro-batches"), std::string::npos);
  }
}

TEST_F(RebalanceCommand, InsideANodeNoWeightTravelsAndNoBitChanges) {
  const std::string steps = "--ep 2 --steps 4 --gmm-rule auto --run ";
  ASSERT_EQ(shell(train(2, steps + path("own"))).exit_code, 0);
  for (const char* threads : {"1", "2"}) {
    const Outcome run =
        shell(train(2, steps + path(threads) + " --rebalance --dispatcher shared --threads " + threads));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(losses(threads), losses("own")) << threads;
    EXPECT_EQ(weights(threads), weights("own")) << threads;
    const auto all = rebalanced(threads);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->weight_bytes, 0);
  }
}

TEST_F(RebalanceCommand, ARunGoesOnWithOrWithoutIt) {
  const auto must_run = [](const std::string& command) {
    const Outcome run = shell(command);
    ASSERT_EQ(run.exit_code, 0) << command << "\n" << run.output;
  };
  const std::string rule = "--ep 2 --gmm-rule auto --dispatcher shared ";
  must_run(train(2, rule + "--steps 4 --run " + path("own")));
  must_run(train(2, rule + "--steps 2 --schedule-steps 4 --rebalance --run " + path("mixed")));
  const std::string resumed = on_ranks(2) + "train --resume " + path("mixed");
  must_run(resumed + " --steps 3 --rebalance off");
  EXPECT_FALSE(rebalanced("mixed")) << "the third step says nothing of it";
  must_run(resumed + " --steps 4 --rebalance");
  EXPECT_EQ(losses("mixed"), losses("own"));
  EXPECT_EQ(weights("mixed"), weights("own"));
}

TEST_F(RebalanceCommand, AResumedRunKeepsIt) {
  ASSERT_EQ(
      shell(train(2, "--ep 2 --steps 2 --schedule-steps 4 --rebalance --run " + path("part"))).exit_code, 0);
  const Outcome resumed = shell(on_ranks(2) + "train --resume " + path("part") + " --steps 4");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "rebalance=yes"), 1u) << resumed.output;
  EXPECT_TRUE(rebalanced("part")) << "every step says what it did";
}

TEST_F(RebalanceCommand, WhereItCannotRunItIsRefusedWithTheReason) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {train(2, "--ep 1 --rebalance"), "has no rank to move rows to: ep = 1"},
      {train(1, "--experts 0 --dense-inter 16 --rebalance"), "this model has no experts"}};
  for (const auto& [command, said] : cases) {
    const Outcome refused = shell(command);
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_EQ(count_of(refused.output, said), 1u) << command << "\n" << refused.output;
  }
}

}  // namespace
}  // namespace moeloom
