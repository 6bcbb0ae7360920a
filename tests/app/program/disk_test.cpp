// Runs whose disk fills, turns read-only or goes away: small file systems of a mount namespace of their own.
#include "moeloom/run/stop_signals.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using namespace testing;

const std::string kOwnMounts = MOELOOM_SOURCE_DIR "/tests/support/own_mounts.sh ";

class Disk : public testing::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (std::system((kOwnMounts + "mount -t tmpfs none /mnt 2> /dev/null").c_str()) != 0)
      GTEST_SKIP() << "no mount namespaces here";
    std::filesystem::create_directory(path("run"));
  }

  /// `script` beside a long run in a file system of 3 MB at $run: it can wait for a line of the log, fill
  /// $run and make room. Afterwards what the run left is copied to `left`.
  Outcome beside_run(const std::string& flags, const std::string& script) {
    write_bytes(path("script"), "run=" + path("run") + R"(
log=)" + path("log") + R"(
seen() { for i in $(seq 3000); do grep -q -- "$1" $log && return; sleep 0.1; done; echo "never: $1"; }
checkpoint() { for i in $(seq 3000); do compgen -G "$run/checkpoint-*" > /dev/null && return; sleep 0.1; done; }
fill() { dd if=/dev/zero of=$run/filler bs=4096 status=none 2> /dev/null; }
stop() { kill $(pgrep -f "^)" + kProgram +
                                    R"( train.*$run " | head -1); }
mount -t tmpfs -o size=3m none $run
()" + train(2, "--save-every 3 --log-every 1000000 --progress off " + flags) +
                                    R"( >> $log 2>&1; echo code=$? >> $log) &
)" + script + R"(
wait
cat $log
ls -A $run
cp -r $run/. )" + path("left") + "\n");
    return shell(kOwnMounts + "bash " + path("script"));
  }
};

TEST_F(Disk, AFullOneLeavesTheLastCheckpointAndTrainingGoesOn) {
  const Outcome run = beside_run("--steps 1000000 --keep 1", R"(
checkpoint; fill
seen "save=failed"; seen "metrics=waiting"
rm $run/filler
seen "metrics=\"written again\""; stop)");
  EXPECT_EQ(count_of(run.output, "code=" + std::to_string(kStoppedExitCode)), 1u) << run.output;
  EXPECT_GE(count_of(run.output, "save=failed step="), 1u) << run.output;
  EXPECT_GE(count_of(run.output, "No space left on device\" last=checkpoint-"), 1u) << run.output;
  // What a failed save gives back may be room for lines, until they have filled it too.
  const auto waits = count_of(run.output, "metrics=waiting");
  EXPECT_GE(waits, 1u) << run.output;
  EXPECT_EQ(count_of(run.output, "metrics=\"written again\""), waits) << "each said once\n" << run.output;
  EXPECT_EQ(count_of(run.output, " lost=0"), waits) << run.output;
  EXPECT_EQ(count_of(run.output, ".partial\n"), 0u) << run.output;
  const auto checkpoints = checkpoints_of(path("left"));
  ASSERT_EQ(checkpoints.size(), 1u) << run.output;
  const auto done = static_cast<Index>(losses("left").size());
  EXPECT_EQ(checkpoints[0].filename(), "checkpoint-" + std::to_string(done)) << "no step is lost";
  EXPECT_EQ(shell(alone() + "inspect --verify " + path("left")).exit_code, 0);
}

TEST_F(Disk, OneThatIsFullAtTheEndIsAnExitCodeOfItsOwnAndTheLastWholeCheckpointStays) {
  const Outcome run =
      beside_run("--steps 1000000", "checkpoint; fill; seen \"save=failed\"; seen \"metrics=waiting\"; stop");
  EXPECT_EQ(count_of(run.output, "code=" + std::to_string(kDiskExitCode)), 1u) << run.output;
  EXPECT_EQ(count_of(run.output, "[error] disk=failed last=checkpoint-"), 1u) << run.output;
  EXPECT_EQ(count_of(run.output, "the last checkpoint was not saved: "), 1u) << run.output;
  EXPECT_EQ(shell(alone() + "inspect --verify " + path("left")).exit_code, 0);
  std::filesystem::remove(path("left") + "/filler");
  const auto checkpoints = checkpoints_of(path("left"));
  ASSERT_FALSE(checkpoints.empty()) << run.output;
  const auto whole = checkpoints.back().filename().string();
  const auto steps = std::stoul(whole.substr(whole.find('-') + 1)) + 2;
  const Outcome resumed =
      shell(on_ranks(2) + "train --steps " + std::to_string(steps) + " --resume " + path("left"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("left").size(), steps);
}

TEST_F(Disk, OneThatTurnsReadOnlyIsSaidAtEachSave) {
  const Outcome run = beside_run("--steps 1000000", R"(
checkpoint
mkdir $run.ro; mount --bind $run $run.ro; mount -o remount,ro,bind $run.ro; mount --bind $run.ro $run
for i in $(seq 3000); do [ $(grep -c save=failed $log) -ge 2 ] && break; sleep 0.1; done; umount $run
echo room again >> $log; seen "room again"
for i in $(seq 3000); do sed -n '/room again/,$p' $log | grep -q saved= && break; sleep 0.1; done
stop)");
  EXPECT_EQ(count_of(run.output, "code=" + std::to_string(kStoppedExitCode)), 1u) << run.output;
  EXPECT_GE(count_of(run.output, "save=failed"), 2u) << run.output;
  EXPECT_GE(count_of(run.output, "Read-only file system\" last=checkpoint-"), 1u) << run.output;
}

TEST_F(Disk, AMountThatIsGoneIsNotReplacedByTheFolderBelow) {
  // Seldom, so that the mount does not go while a checkpoint is begun.
  const Outcome run = beside_run("--steps 1000000 --save-every 200", R"(
checkpoint
mkdir $run.was; mount --move $run $run.was 2> /dev/null || { mount -t tmpfs none $run; }
seen "save=failed"; seen "metrics=waiting"; ls -A $run > $run.below
umount $run 2> /dev/null || mount --move $run.was $run
seen "metrics=\"written again\""; stop)");
  // A save that was under way then fails by what it no longer finds.
  EXPECT_GE(count_of(run.output, "a mount is gone"), 1u) << run.output;
  EXPECT_EQ(testing::read_bytes(path("run.below")), "") << run.output;
  EXPECT_EQ(count_of(run.output, "code=" + std::to_string(kStoppedExitCode)), 1u) << run.output;
}

}  // namespace
}  // namespace moeloom
