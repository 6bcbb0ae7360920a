// `moeloom train` when a rank is stopped, spins, is killed or fails: the job ends, and the right rank is
// named.

#include "program/program_testing.hpp"
#include "watch/watcher.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::Outcome;
using testing::shell;

class StallCommand : public testing::ProgramTest {
 protected:
  Outcome with_fault(const std::string& fault, const std::string& run, const std::string& more = {}) const {
    return shell(
        "MOELOOM_FAULT=" + fault + " " +
        train(2, "--ep 2 --steps 4 --allow-faults --stall-timeout 2 " + more + " --run " + path(run)));
  }
  std::size_t watchers() const { return count_of(shell("ps -eo stat,args | grep -v '^Z'").output, path("")); }
};

TEST_F(StallCommand, AStoppedRankEndsTheJobAndIsNamed) {
  const std::vector<std::pair<std::string, const char*>> cases = {{"stop:1:2:experts:1", "rank 1 (process "},
                                                                  {"stop:0:1:reduce", "rank 0 (process "},
                                                                  {"spin:1:2:experts:0", "rank 1 (process "}};
  for (const auto& [fault, named] : cases) {
    const Outcome outcome = with_fault(fault, fault);
    EXPECT_EQ(outcome.exit_code, kStalledExitCode) << outcome.output;
    EXPECT_GE(count_of(outcome.output, "[error] stalled: "), 1u) << outcome.output;
    EXPECT_GE(count_of(outcome.output, named), 1u) << outcome.output;
    EXPECT_TRUE(std::filesystem::exists(path(fault) + "/stall.json"));
    EXPECT_TRUE(testing::soon([&] { return watchers() == 0; })) << fault;
  }
}

TEST_F(StallCommand, ARankThatNeverStartsEndsTheJobInTheStartOfMpi) {
  const Outcome outcome = shell(testing::on_two_ranks(
      testing::kProgram + " train --stall-timeout 1 --data " + path("corpus.txt") + " --run " + path("run"),
      "sleep 100"));
  EXPECT_EQ(outcome.exit_code, kStalledExitCode) << outcome.output;
  EXPECT_EQ(
      count_of(outcome.output, "nothing is heard of rank 1; rank 0 waits in starting, in MPI_Init_thread"),
      1u)
      << outcome.output;
}

TEST_F(StallCommand, ADiskThatHangsHoldsNoWatcherBack) {
  // Who opens one of these waits for ever, as a client of a dead file server. (What an earlier run left there
  // is removed in the first moments.)
  const std::string stall = path("run") + "/stall";
  const std::string hang =
      "until [ -s " + path("run") + "/metrics.jsonl ]; do sleep 0.05; done; sleep 1; mkdir " + stall +
      "; mkfifo " + stall + "/rank-0.json.partial " + stall + "/rank-1.json.partial; mkdir " + path("run") +
      "/ended; mkfifo " + path("run") + "/ended/rank-0 " + path("run") + "/ended/rank-1; ";
  const Outcome outcome =
      shell("MOELOOM_FAULT=spin:1:2:experts " +
            train(2, "--ep 2 --steps 4 --allow-faults --stall-timeout 8 --run " + path("run")) + " & " +
            hang + "wait $!");
  EXPECT_EQ(outcome.exit_code, kStalledExitCode) << outcome.output;
  EXPECT_GE(count_of(outcome.output, ", and the disk of " + path("run") + " does not answer"), 1u)
      << outcome.output;
  EXPECT_TRUE(testing::soon([&] { return watchers() == 0; }));
}

TEST_F(StallCommand, ARankThatIsSlowForAWhileEndsNothing) {
  // It moves every two seconds; the other waits for ten, in which its watcher asks twice.
  const Outcome outcome = with_fault("slow:1:2:data", "slow", "--stall-timeout 4");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(losses("slow").size(), 4u);
}

TEST_F(StallCommand, NobodyWatchesWhereTheTimeIsZero) {
  // What a scheduler does to a job that it suspends: nothing ends it, and it goes on.
  const Outcome outcome =
      shell("MOELOOM_FAULT=stop:1:2:experts " + testing::within_time() + "bash -c '" +
            train(2, "--ep 2 --steps 4 --allow-faults --stall-timeout 0 --run " + path("patient")) +
            " & until [ -s " + path("patient") + "/faults.log ]; do sleep 0.05; done; sleep 5; " +
            "pkill -CONT -f patient; wait $!'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(losses("patient").size(), 4u);
}

TEST_F(StallCommand, AFaultIsRefusedUnlessItIsAllowed) {
  const Outcome outcome = shell("MOELOOM_FAULT=stop:1:2:experts " + train(2, "--run " + path("run")));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_of(outcome.output, "planned faults (MOELOOM_FAULT) break a run on purpose"), 1u)
      << outcome.output;
  const Outcome wrong = shell("MOELOOM_FAULT=stop " + train(2, "--allow-faults --run " + path("run")));
  EXPECT_EQ(count_of(wrong.output, "KIND:RANK:STEP:WHERE[:LAYER]"), 1u) << wrong.output;
}

}  // namespace
}  // namespace moeloom
