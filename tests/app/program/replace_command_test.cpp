// `moeloom train --replace-every`, whole commands.

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class ReplaceCommand : public testing::ProgramTest {
 protected:
  /// Of every checkpoint of a run, while some experts moved as it was being written.
  std::string checkpoints(const std::string& run) const {
    std::string bytes;
    for (const char* step : {"1", "2", "3", "4"})
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        bytes += testing::read_bytes(path(run) + "/checkpoint-" + step + "/" + file);
    return bytes;
  }
  /// Experts that moved, of all steps.
  Index moved(const std::string& run) const {
    Index experts = 0;
    for (const StepMetrics& step : read_metrics(path(run) + "/metrics.jsonl"))
      if (step.replace) experts += step.replace->moved;
    return experts;
  }
};

/// Few experts have most tokens. On a network on which weights cost next to nothing
/// some of them part.
constexpr const char* kUneven = " --ep 2 --experts 8 --force-routing zipf";
constexpr const char* kFreeNet = " --net 100000Gbit,1us";

TEST_F(ReplaceCommand, TrainsTheSameLossesAndCheckpointAndSaysWhatItMoved) {
  const std::string two_nodes = "MOELOOM_PRETEND_NODES=2 ";
  const std::string uneven =
      std::string(kUneven) + " --steps 4 --save-every 1 --keep 0 --async-save true --run ";
  ASSERT_EQ(shell(two_nodes + train(2, uneven + path("stays"))).exit_code, 0);
  const Outcome run = shell(two_nodes + train(2, uneven + path("moves") + " --replace-every 1" + kFreeNet));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count_of(run.output, "replace_every=1"), 1u) << run.output;
  EXPECT_EQ(count_of(run.output, "replaced_experts="), 4u) << run.output;
  EXPECT_EQ(losses("moves"), losses("stays"));
  EXPECT_TRUE(checkpoints("moves") == checkpoints("stays"));
  EXPECT_EQ(moved("stays"), 0);
  EXPECT_GT(moved("moves"), 0);
  EXPECT_NE(testing::read_bytes(path("moves") + "/report.html").find("experts moved"), std::string::npos);
}

TEST_F(ReplaceCommand, AResumedRunKeepsIt) {
  ASSERT_EQ(shell(train(2, std::string(kUneven) + " --steps 2 --schedule-steps 4 --replace-every 1" +
                               kFreeNet + " --run " + path("part")))
                .exit_code,
            0);
  const Outcome resumed = shell(on_ranks(2) + "train --resume " + path("part") + " --steps 4");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "replace_every=1"), 1u) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "replaced_experts="), 2u) << resumed.output;
  EXPECT_GT(moved("part"), 0);
}

TEST_F(ReplaceCommand, WhereItCannotRunItIsRefusedWithTheReason) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {train(2, "--ep 1 --replace-every 5"), "--replace-every 5 has no rank to move experts to: ep = 1"},
      {train(2, "--ep 2 --replace-every -1"), "replace-every = -1 must be at least 0"},
      {train(2, "--ep 2 --replace-every 5 --row-budget 100"), "cut sums by them"},
      {train(2, "--ep 2 --experts 5 --replace-every 5"), "ep = 2 does not divide the 5 experts"},
      {train(1, "--experts 0 --dense-inter 16 --replace-every 5"), "this model has no experts"}};
  for (const auto& [command, said] : cases) {
    const Outcome refused = shell(command);
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_EQ(count_of(refused.output, said), 1u) << command << "\n" << refused.output;
  }
}

}  // namespace
}  // namespace moeloom
