// `moeloom train --progress-thread`, whole commands.

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::Outcome;
using testing::shell;

class ProgressCommand : public testing::ProgramTest {
 protected:
  std::string weights(const std::string& run, const std::string& checkpoint) const {
    return testing::read_bytes(path(run) + "/" + checkpoint + "/model.safetensors");
  }
};

constexpr const char* kTravel = " --overlap-grad-reduce on --overlap-param-gather on";

TEST_F(ProgressCommand, LeavesEveryNumberAsItIs) {
  struct Case {
    const char* what;
    int ranks;
    const char* environment;
    std::string options;
  };
  const std::vector<Case> cases = {
      {"sums and weights", 2, "", std::string("--ep 1 --accumulate 2 --check-replicas 2") + kTravel},
      {"sums by OpenBLAS", 2, "MOELOOM_GMM_PATCH=0 ", std::string("--ep 2 --kernels none") + kTravel},
      {"rows in chunks", 2, "", std::string("--ep 2 --dispatcher alltoall --overlap 2") + kTravel},
      {"replicas", 2, "",
       std::string("--ep 2 --dispatcher alltoall --rebalance yes --overlap off") + kTravel},
      {"hierarchical in chunks", 4, "MOELOOM_PRETEND_NODES=2 ",
       std::string("--ep 4 --dispatcher hierarchical --overlap 2") + kTravel},
      {"bf16 rows of hierarchical", 4, "MOELOOM_PRETEND_NODES=2 ",
       "--ep 4 --dispatcher hierarchical --overlap 2 --wire-dtype bf16 --combine fast"},
  };
  for (const Case& c : cases) {
    const std::string steps =
        "--experts 8 --hidden 128 --inter 128 --seq-len 128 --global-batch 8 --steps 4 --eval-every 2 "
        "--save-every 2 --keep 0 --threads 1 --overwrite " +
        c.options;
    const Outcome polls =
        shell(c.environment + train(c.ranks, steps + " --run " + path("polls") + " --progress-thread off"));
    ASSERT_EQ(polls.exit_code, 0) << c.what << polls.output;
    EXPECT_EQ(count_of(polls.output, "progress_thread=no reason=\"--progress-thread off\""), 1u)
        << polls.output;
    const Outcome moved =
        shell(c.environment + train(c.ranks, steps + " --run " + path("moved") + " --progress-thread on"));
    ASSERT_EQ(moved.exit_code, 0) << c.what << moved.output;
    EXPECT_EQ(count_of(moved.output, "progress_thread=yes reason=\"--progress-thread on\""), 1u)
        << moved.output;
    EXPECT_EQ(losses("moved"), losses("polls")) << c.what;
    for (const char* checkpoint : {"checkpoint-2", "checkpoint-4"})
      EXPECT_EQ(weights("moved", checkpoint), weights("polls", checkpoint)) << c.what << " " << checkpoint;
  }
}

/// A rank has no more processors than there are.
TEST_F(ProgressCommand, IsDecidedByWhatTravelsAndByFreeProcessors) {
  const Outcome one_node = shell(train(2, std::string("--ep 1 --steps 1") + kTravel));
  ASSERT_EQ(one_node.exit_code, 0) << one_node.output;
  EXPECT_EQ(count_of(one_node.output, "progress_thread=no reason=\"all ranks are on one node"), 1u)
      << one_node.output;
  const Outcome idle = shell(train(2, "--ep 1 --steps 1 --overwrite"));
  EXPECT_EQ(count_of(idle.output, "progress_thread=no reason=\"nothing travels while ranks compute\""), 1u)
      << idle.output;
  const Outcome crowded =
      shell("MOELOOM_PRETEND_NODES=2 " + train(2, "--ep 1 --steps 1 --overwrite --threads $(nproc)"));
  ASSERT_EQ(crowded.exit_code, 0) << crowded.output;
  EXPECT_EQ(count_of(crowded.output, "progress_thread=no reason=\"no processor is free for it: a rank of "),
            1u)
      << crowded.output;
}

TEST_F(ProgressCommand, RefusesByName) {
  for (const char* bad : {"yes", "-1", "1024", "0.5"}) {
    const Outcome run = shell(train(1, std::string("--steps 1 --progress-thread ") + bad));
    EXPECT_NE(run.exit_code, 0) << bad;
    EXPECT_EQ(count_of(run.output, "--progress-thread"), 1u) << run.output;
  }
  const Outcome idle = shell(train(2, "--ep 1 --steps 1 --progress-thread on"));
  EXPECT_NE(idle.exit_code, 0);
  EXPECT_EQ(count_of(idle.output,
                     "--progress-thread on cannot be: nothing travels while ranks compute; say "
                     "--overlap-grad-reduce on"),
            1u)
      << idle.output;
  const Outcome nowhere = shell(train(2, std::string("--ep 1 --steps 1 --progress-thread 1023") + kTravel));
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_EQ(count_of(nowhere.output, "a progress thread (--progress-thread) may not run on processor 1023"),
            1u)
      << nowhere.output;
}

/// Whatever ends a run does so while messages travel and the thread looks.
TEST_F(ProgressCommand, EndsWithTheRun) {
  struct Case {
    const char* fault;
    int exit_code;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"nan:1:2:router:1", kFailedExitCode, "is not finite"},
      {"throw:1:2:experts:1", kFailedExitCode, "rank 1: "},
      {"stop:1:2:experts:1", kStalledExitCode, "rank 1"},
      {"kill:1:2:experts:1", 137, "rank 1"},
  };
  for (const Case& c : cases) {
    const Outcome run = shell(std::string("MOELOOM_FAULT=") + c.fault + " " +
                              train(2, std::string("--ep 1 --steps 4 --allow-faults --stall-timeout 2 "
                                                   "--progress-thread on --run ") +
                                           path(c.fault) + kTravel));
    EXPECT_EQ(run.exit_code, c.exit_code) << c.fault << run.output;
    EXPECT_GE(count_of(run.output, c.said), 1u) << c.fault << run.output;
  }
}

}  // namespace
}  // namespace moeloom
