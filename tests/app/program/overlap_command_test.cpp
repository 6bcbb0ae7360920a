// `moeloom train --overlap-grad-reduce --overlap-param-gather`, whole commands.

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class OverlapCommand : public testing::ProgramTest {
 protected:
  std::string weights(const std::string& run, const std::string& checkpoint) const {
    return testing::read_bytes(path(run) + "/" + checkpoint + "/model.safetensors");
  }
};

constexpr const char* kOn = " --overlap-grad-reduce on --overlap-param-gather on";

/// Whatever reads weights between two steps reads those of the last update.
TEST_F(OverlapCommand, LeavesEveryNumberAsItIs) {
  const std::string steps =
      "--experts 4 --steps 5 --eval-every 2 --save-every 2 --keep 0 --check-replicas 2 --sample-chars 10 ";
  for (const std::string mesh : {"--ep 1", "--ep 2 --rebalance", "--ep 1 --accumulate 2"}) {
    const Outcome plain = shell(train(2, steps + mesh + " --overwrite --run " + path("plain")));
    ASSERT_EQ(plain.exit_code, 0) << plain.output;
    EXPECT_EQ(count_of(plain.output, "overlap_grad_reduce=no reason=\"all ranks are on one node"), 1u)
        << plain.output;
    const Outcome run = shell(train(2, steps + mesh + " --overwrite --run " + path("travel") + kOn));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, "overlap_param_gather=yes reason=\"--overlap-param-gather on\""), 1u)
        << run.output;
    EXPECT_EQ(losses("travel"), losses("plain")) << mesh;
    for (const char* checkpoint : {"checkpoint-2", "checkpoint-4", "checkpoint-5"})
      EXPECT_EQ(weights("travel", checkpoint), weights("plain", checkpoint)) << mesh << " " << checkpoint;
  }
}

TEST_F(OverlapCommand, LeavesEveryNumberAsItIsWhereRanksShareNodes) {
  const std::string steps = "--experts 4 --steps 4 --save-every 2 --keep 0 --check-replicas 2 ";
  for (const std::string mesh :
       {"--ep 1", "--ep 2 --mesh-order ep,dp", "--ep 4 --dispatcher hierarchical --overlap 2"}) {
    const Outcome plain = shell(train(4, steps + mesh + " --overwrite --run " + path("plain")));
    ASSERT_EQ(plain.exit_code, 0) << plain.output;
    const Outcome run =
        shell("MOELOOM_PRETEND_NODES=2 " + train(4, steps + mesh + " --overwrite --run " + path("travel")));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, "overlap_param_gather=yes reason=\"ranks lie on several nodes"), 1u)
        << run.output;
    EXPECT_EQ(losses("travel"), losses("plain")) << mesh;
    for (const char* checkpoint : {"checkpoint-2", "checkpoint-4"})
      EXPECT_EQ(weights("travel", checkpoint), weights("plain", checkpoint)) << mesh << " " << checkpoint;
  }
}

TEST_F(OverlapCommand, IsChosenWhereRanksLieOnSeveralNodes) {
  const Outcome run = shell("MOELOOM_PRETEND_NODES=2 " + train(2, "--ep 1 --steps 2"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count_of(run.output, "overlap_grad_reduce=yes reason=\"ranks lie on several nodes"), 1u)
      << run.output;
  EXPECT_EQ(count_of(run.output, "overlap_param_gather=yes reason=\"ranks lie on several nodes"), 1u);
}

TEST_F(OverlapCommand, RefusesWhatCannotTravelByName) {
  const Outcome exact = shell(train(2, "--ep 1 --steps 1 --exact 1 --overlap-grad-reduce on"));
  EXPECT_NE(exact.exit_code, 0);
  EXPECT_EQ(
      count_of(exact.output, "--overlap-grad-reduce on cannot be: exact sums (--exact) are of integers"), 1u)
      << exact.output;
  const Outcome shared = shell(train(2, "--ep 1 --steps 1 --shard-dense yes --overlap-param-gather on"));
  EXPECT_NE(shared.exit_code, 0);
  EXPECT_EQ(count_of(shared.output, "--overlap-param-gather on cannot be: with --shard-dense yes"), 1u)
      << shared.output;
}

}  // namespace
}  // namespace moeloom
