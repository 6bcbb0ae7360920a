// `moeloom train` under faults of a disk, of numbers and of memory that MOELOOM_FAULT asks for.

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::Outcome;
using testing::shell;

class FaultCommand : public testing::ProgramTest {
 protected:
  Outcome with_fault(const std::string& fault, const std::string& run, const std::string& more = {}) const {
    return shell(
        "MOELOOM_FAULT=" + fault + " " +
        train(2, "--ep 2 --steps 6 --save-every 2 --keep 0 --allow-faults " + more + " --run " + path(run)));
  }
  std::string weights(const std::string& run) const {
    return testing::read_bytes(path(run) + "/checkpoint-6/model.safetensors");
  }
};

TEST_F(FaultCommand, ARefusedWriteCostsOneCheckpointAndNamesTheRank) {
  const Outcome whole = shell(train(2, "--ep 2 --steps 6 --save-every 2 --keep 0 --run " + path("whole")));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  for (const std::string async : {"true", "false"})
    for (const std::string fault : {"enospc:1:4:write", "enospc:1:4:fsync", "enospc:0:4:rename"}) {
      const std::string run = fault + async;
      const Outcome outcome = with_fault(fault, run, "--async-save " + async);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      EXPECT_EQ(
          count_of(outcome.output, "save=failed step=4 reason=\"rank " + fault.substr(7, 1) + ": cannot "),
          1u)
          << outcome.output;
      EXPECT_GE(count_of(outcome.output, "No space left on device\" last=checkpoint-2"), 1u);
      EXPECT_FALSE(std::filesystem::exists(path(run) + "/checkpoint-4"));
      EXPECT_EQ(weights(run), weights("whole")) << run;
    }
  const Outcome shortened = with_fault("short-write:1:4:write,short-write:0:6:manifest", "short");
  EXPECT_EQ(shortened.exit_code, 0) << shortened.output;
  EXPECT_EQ(count_of(shortened.output, "save=failed"), 0u) << shortened.output;
  EXPECT_EQ(shell(testing::alone() + "inspect --verify " + path("short")).exit_code, 0);
  EXPECT_EQ(weights("short"), weights("whole"));
}

TEST_F(FaultCommand, ANanNamesItsParameterAndItsRank) {
  const Outcome outcome = with_fault("nan:1:3:router:1", "nan");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_EQ(count_of(outcome.output,
                     "[error] step 3: the gradient is not finite; first in that of "
                     "model.layers.1.mlp.gate.weight on rank 1; "),
            1u)
      << outcome.output;
}

TEST_F(FaultCommand, AFlippedBitChangesTheRunWithoutAWord) {
  const Outcome whole = shell(train(2, "--ep 2 --steps 6 --save-every 2 --keep 0 --run " + path("whole")));
  const Outcome flipped = with_fault("flip:0:3:router:0", "flipped");
  EXPECT_EQ(flipped.exit_code, 0) << flipped.output;
  EXPECT_NE(losses("flipped"), losses("whole"));
}

TEST_F(FaultCommand, AFlippedBitIsFoundWhereReplicasAreCompared) {
  const auto run = [&](const std::string& name, const std::string& fault) {
    return shell(
        fault +
        train(3, "--ep 1 --global-batch 6 --steps 6 --allow-faults --check-replicas 1 --run " + path(name)));
  };
  EXPECT_EQ(run("whole", "").exit_code, 0);
  const Outcome flipped = run("flipped", "MOELOOM_FAULT=flip:1:3:router:0 ");
  EXPECT_EQ(flipped.exit_code, kCorruptExitCode) << flipped.output;
  EXPECT_EQ(count_of(flipped.output,
                     "[error] step 3: a number is not what the update before left; first "
                     "model.layers.0.mlp.gate.weight on rank 1; "),
            1u)
      << flipped.output;
}

TEST_F(FaultCommand, ARankThatIsKilledWhileItLoadsStrikesAfterAnEarlierFault) {
  const std::string faults = "kill:1:5:experts,kill:0:4:loading";
  EXPECT_EQ(with_fault(faults, "run", "--async-save false").exit_code, 137);
  const std::string resume =
      "MOELOOM_FAULT=" + faults + " " + testing::on_ranks(2) + "train --resume " + path("run");
  EXPECT_EQ(shell(resume).exit_code, 137);
  const Outcome resumed = shell(resume);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("run").size(), 6u);
}

}  // namespace
}  // namespace moeloom
