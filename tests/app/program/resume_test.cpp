// Runs that stop and go on: resumed, moved to another mesh, taken back to an earlier step, killed.
#include "moeloom/run/stop_signals.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <csignal>
#include <future>
#include <set>

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

class Resume : public testing::ProgramTest {};

TEST_F(Resume, AResumedRunHasTheLossesOfOneThatDidNotStop) {
  ASSERT_EQ(shell(train(2, "--ep 2 --steps 8 --schedule-steps 8")).exit_code, 0);
  const std::vector<double> whole = losses("run");
  ASSERT_EQ(shell(train(2, "--ep 2 --steps 4 --schedule-steps 8 --run " + path("part"))).exit_code, 0);
  fs::copy(path("part"), path("elsewhere"), fs::copy_options::recursive);
  const Outcome same = shell(on_ranks(2) + "train --steps 8 --resume " + path("part"));
  ASSERT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(losses("part"), whole) << "bit for bit on the same mesh";
  const Outcome other = shell(on_ranks(4) + "train --steps 8 --ep 4 --resume " + path("elsewhere"));
  ASSERT_EQ(other.exit_code, 0) << other.output;
  const std::vector<double> moved = losses("elsewhere");
  ASSERT_EQ(moved.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(moved[i], whole[i], 1e-5 * whole[i]) << "step " << i;
}

TEST_F(Resume, MomentsInFewerBytesComeBackBitForBitAndGoOnInAnotherFormat) {
  for (const std::string format : {"bf16", "int8"}) {
    SCOPED_TRACE(format);
    const std::string flags =
        "--gmm-rule auto --ep 2 --exact 1 --moments " + format + " --schedule-steps 8 --run ";
    ASSERT_EQ(shell(train(2, "--steps 8 " + flags + path("whole-" + format))).exit_code, 0);
    const std::vector<double> whole = losses("whole-" + format);
    ASSERT_EQ(shell(train(2, "--steps 4 " + flags + path(format))).exit_code, 0);
    fs::copy(path(format), path("fp32-" + format), fs::copy_options::recursive);
    const Outcome same = shell(on_ranks(2) + "train --ep 1 --steps 8 --resume " + path(format));
    ASSERT_EQ(same.exit_code, 0) << same.output;
    EXPECT_EQ(losses(format), whole) << "at another ep";
    const Outcome other =
        shell(on_ranks(2) + "train --steps 8 --moments fp32 --weight-decay 0.125 --resume " +
              path("fp32-" + format));
    ASSERT_EQ(other.exit_code, 0) << other.output;
    EXPECT_EQ(count_of(other.output, "changed=moments then=" + format + " now=fp32"), 1u) << other.output;
    EXPECT_EQ(count_of(other.output, "changed=weight-decay then="), 1u) << other.output;
    EXPECT_EQ(count_of(other.output, "now=0.125 keep=\"--weight-decay "), 1u) << other.output;
    EXPECT_NEAR(losses("fp32-" + format).back(), whole.back(), 0.01 * whole.back());
  }
}

TEST_F(Resume, MuonGoesOnAtAnotherEpAndNoOtherOptimizerDoes) {
  const std::string flags = "--gmm-rule auto --ep 2 --exact 1 --optimizer muon --schedule-steps 6 --run ";
  ASSERT_EQ(shell(train(2, "--steps 6 " + flags + path("whole"))).exit_code, 0);
  ASSERT_EQ(shell(train(2, "--steps 3 " + flags + path("part"))).exit_code, 0);
  const Outcome same = shell(on_ranks(2) + "train --ep 1 --steps 6 --resume " + path("part"));
  ASSERT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(losses("part"), losses("whole"));
  const Outcome other = shell(on_ranks(2) + "train --steps 7 --optimizer adamw --resume " + path("part"));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_EQ(count_of(other.output, "the run that is resumed has the moments of muon; give --optimizer muon"),
            1u)
      << other.output;
}

TEST_F(Resume, ARunThatGoesOnFromAnEarlierStepLeavesItsOtherCourse) {
  ASSERT_EQ(shell(train(2, "--steps 6 --save-every 2 --keep 0 --schedule-steps 6")).exit_code, 0);
  const Outcome again = shell(on_ranks(2) + "train --steps 3 --keep 1 --resume " + path("run/checkpoint-2/"));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(count_of(again.output, "removed=\"checkpoint-6, checkpoint-4\" reason=\"later than step 2"), 1u)
      << again.output;
  EXPECT_EQ(count_of(again.output, "changed="), 0u) << "the schedule was given, and is kept\n"
                                                    << again.output;
  EXPECT_EQ(checkpoints_of(path("run")), std::vector<fs::path>{path("run/checkpoint-3")});
  EXPECT_EQ(losses("run").size(), 3u);
  const Outcome done = shell(on_ranks(2) + "train --steps 3 --resume " + path("run"));
  EXPECT_NE(done.exit_code, 0);
  EXPECT_EQ(count_of(done.output, "the run is at step 3 already; --steps 3 leaves nothing to do"), 1u)
      << done.output;
}

TEST_F(Resume, ARunThatWasKilledAfterItsLastStepIsEnded) {
  const std::string fault = "MOELOOM_FAULT=kill:0:4:ending ";
  EXPECT_EQ(shell(fault + train(2, "--ep 2 --steps 4 --allow-faults --export " + path("weights"))).exit_code,
            137);
  ASSERT_EQ(losses("run").size(), 4u);
  EXPECT_FALSE(fs::exists(path("run/report.html")));
  const Outcome ended = shell(fault + on_ranks(2) + "train --resume " + path("run"));
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_TRUE(fs::exists(path("run/report.html")));
  EXPECT_TRUE(fs::exists(path("weights/model.safetensors")));
  EXPECT_EQ(losses("run").size(), 4u);
  const Outcome more = shell("MOELOOM_FAULT=kill:0:5:ending " + on_ranks(2) +
                             "train --steps 5 --export '' --resume " + path("run"));
  EXPECT_EQ(more.exit_code, 137) << more.output;
  EXPECT_FALSE(fs::exists(path("run/report.html"))) << "that of 4 steps is not the end of 5";
}

TEST_F(Resume, CheckpointsWrittenBesideTheStepsAreThoseOfARunThatWaits) {
  const std::string steps = "--ep 2 --steps 9 --save-every 2 --keep 0 --async-save ";
  for (const std::string asked : {"auto", "true", "false"}) {
    const Outcome run = shell(train(2, steps + asked + " --run " + path(asked)));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, "async_save=" + std::string(asked == "false" ? "no" : "yes")), 1u)
        << run.output;
    EXPECT_EQ(count_of(run.output, " saved="), 5u) << run.output;
    ASSERT_EQ(checkpoints_of(path(asked)).size(), 5u);
    EXPECT_EQ(losses(asked), losses("auto"));
    const Outcome same = shell("diff -r " + path(asked) + "/ " + path("auto") +
                               "/ -x train.log -x train.conf -x metrics.jsonl -x report.html");
    EXPECT_EQ(same.exit_code, 0) << same.output;
  }
}

TEST_F(Resume, ACheckpointIsMadeWhereTheLastIsOldInMinutes) {
  const std::string run =
      train(2, "--ep 2 --steps 1000000 --save-every 0 --save-minutes 0.003 --log-every 1000000");
  std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(run); });
  std::set<fs::path> seen;
  EXPECT_TRUE(soon([&] {
    for (const fs::path& checkpoint : checkpoints_of(path("run"))) seen.insert(checkpoint);
    return seen.size() >= 4;
  }));
  for (const pid_t rank : ranks_with(path("run"))) kill(rank, SIGTERM);
  const Outcome stopped = job.get();
  EXPECT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.output;
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndTheOneBeforeItIsUsed) {
  ASSERT_EQ(shell(train(2, "--steps 6 --save-every 2 --keep 0 --schedule-steps 6")).exit_code, 0);
  const std::vector<double> whole = losses("run");
  const std::string inspect = alone() + "inspect --verify " + path("run");
  const Outcome good = shell(inspect);
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_EQ(count_of(good.output, "  whole  "), 12u) << good.output;
  EXPECT_EQ(count_of(good.output, " MB/s\n"), 3u) << good.output;
  const fs::path damaged = path("run/checkpoint-6/optimizer.safetensors");
  std::string bytes = read_bytes(damaged);
  bytes[bytes.size() / 2] ^= 4;
  write_bytes(damaged, bytes);
  fs::remove(path("run/checkpoint-4/model.safetensors"));
  const Outcome bad = shell(inspect);
  EXPECT_EQ(bad.exit_code, kDataExitCode) << bad.output;
  EXPECT_EQ(count_of(bad.output, "  damaged  "), 2u) << bad.output;
  const Outcome named = shell(on_ranks(2) + "train --steps 7 --resume " + path("run/checkpoint-6"));
  EXPECT_NE(named.exit_code, 0);
  EXPECT_EQ(count_of(named.output, "checkpoint-6 is damaged: optimizer.safetensors: bytes 0 to"), 1u)
      << named.output;
  const Outcome generated = shell(on_ranks(2) + "generate --tokens 2 " + path("run"));
  EXPECT_EQ(generated.exit_code, 0) << generated.output;
  EXPECT_EQ(count_of(generated.output, "damaged="), 2u) << generated.output;
  const Outcome resumed = shell(on_ranks(2) + "train --steps 6 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "damaged=" + path("run/checkpoint-6") + " reason=\"optimizer.safe"), 1u)
      << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "damaged=" + path("run/checkpoint-4")), 1u) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "verified=" + path("run/checkpoint-2") + " files=4"), 1u)
      << resumed.output;
  EXPECT_EQ(count_of(read_bytes(path("run/train.log")), "damaged="), 2u);
  EXPECT_EQ(losses("run"), whole);
  EXPECT_TRUE(fs::exists(path("run/damaged-checkpoint-6/optimizer.safetensors"))) << resumed.output;
}

TEST_F(Resume, ACheckpointFromBeforeManifestsIsUsedWithAWord) {
  ASSERT_EQ(shell(train(1, "--steps 2")).exit_code, 0);
  const fs::path checkpoint = path("run/checkpoint-2");
  fs::remove(checkpoint / "manifest.json");
  Document state = Document::read(checkpoint / "trainer_state.json");
  state.erase("manifest");
  state.write(checkpoint / "trainer_state.json");
  const Outcome resumed = shell(on_ranks(1) + "train --steps 3 --keep 0 --resume " + path("run"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "unverified="), 1u) << resumed.output;
  const Outcome inspected = shell(alone() + "inspect --verify " + checkpoint.string());
  EXPECT_EQ(inspected.exit_code, kDataExitCode) << inspected.output;
  EXPECT_EQ(count_of(inspected.output, "has no manifest.json"), 1u) << inspected.output;
}

TEST_F(Resume, AResumedRunSaysWhatItChangesAndKeepsOtherRunsApart) {
  ASSERT_EQ(shell(train(1, "--steps 2 --overwrite")).exit_code, 0);
  ASSERT_EQ(shell(train(1, "--steps 2 --run " + path("other"))).exit_code, 0);
  const std::string resume = "train --steps 4 --resume " + path("run");
  const Outcome mixed = shell(on_ranks(2) + resume + " --run " + path("other"));
  EXPECT_NE(mixed.exit_code, 0);
  EXPECT_EQ(count_of(mixed.output, "other holds a run already that --resume"), 1u) << mixed.output;
  const Outcome lost = shell(on_ranks(2) + resume + " --overwrite");
  EXPECT_NE(lost.exit_code, 0);
  EXPECT_EQ(count_of(lost.output, "--overwrite would remove"), 1u) << lost.output;
  const Outcome longer = shell(on_ranks(2) + resume);
  ASSERT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_EQ(count_of(longer.output, "changed=schedule-steps then=2 now=4 keep=\"--schedule-steps 2\""), 1u)
      << longer.output;
  EXPECT_EQ(count_of(longer.output, "changed=\"learning rate\" then="), 1u) << longer.output;
  const Outcome replaced =
      shell(on_ranks(2) + "train --steps 6 --overwrite --resume " + path("run") + " --run " + path("other"));
  EXPECT_EQ(replaced.exit_code, 0) << replaced.output;
  EXPECT_EQ(checkpoints_of(path("other")), std::vector<fs::path>{path("other/checkpoint-6")});
  EXPECT_EQ(losses("other").size(), 2u) << "steps 4 and 5";
}

TEST_F(Resume, AKilledRankEndsTheJobAndTheRunGoesOnFromItsCheckpoint) {
  const std::string long_run = train(2, "--ep 2 --steps 100000 --save-every 5 --log-every 1000000");
  std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(long_run); });
  const bool saved = soon([&] { return !checkpoints_of(path("run")).empty(); });
  const std::vector<pid_t> ranks = ranks_with(path("run"));
  EXPECT_TRUE(saved);
  EXPECT_EQ(ranks.size(), 2u);
  const std::string in_use = path("run") + " is in use by another job: process ";
  for (const std::string& second : {train(1, "--overwrite"), on_ranks(1) + "train --resume " + path("run")}) {
    const Outcome refused = shell(second);
    EXPECT_NE(refused.exit_code, 0) << refused.output;
    EXPECT_EQ(count_of(refused.output, in_use), 1u) << refused.output;
  }
  if (!ranks.empty()) kill(ranks.back(), SIGKILL);
  const Outcome killed = job.get();
  EXPECT_NE(killed.exit_code, 0) << killed.output;
  EXPECT_TRUE(soon([&] { return ranks_with(path("run")).empty(); }, testing::kUntilGone))
      << "the other rank lives on";
  const auto checkpoints = checkpoints_of(path("run"));
  ASSERT_FALSE(checkpoints.empty()) << killed.output;
  const Index done = std::stoll(checkpoints.back().filename().string().substr(11));
  const Outcome resumed = shell(on_ranks(2) + "train --log-every 1000000 --steps " +
                                std::to_string(done + 2) + " --resume " + path("run"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "lock=\"taken over\" reason=\"process "), 1u) << resumed.output;
  EXPECT_EQ(static_cast<Index>(losses("run").size()), done + 2) << "no step twice, none missing";
}

TEST_F(Resume, ASignalToOneRankStopsAllAfterTheSameStepWithACheckpoint) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    fs::remove_all(path("run"));
    const std::string run = train(2, "--ep 2 --steps 1000000 --save-every 0 --log-every 1000000");
    std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(run); });
    const bool trains = soon([&] { return losses("run").size() >= 3; });
    const std::vector<pid_t> ranks = ranks_with(path("run"));
    EXPECT_TRUE(trains);
    EXPECT_EQ(ranks.size(), 2u);
    if (!ranks.empty()) kill(ranks.back(), signal);
    const Outcome stopped = job.get();
    EXPECT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.output;
    const auto done = static_cast<Index>(losses("run").size());
    const std::string said = "stopped=" + std::string(signal_name(signal)) + " step=" + std::to_string(done) +
                             " go_on=\"--resume " + path("run") + "\"";
    EXPECT_EQ(count_of(stopped.output, said), 1u) << stopped.output;
    ASSERT_EQ(checkpoints_of(path("run")),
              std::vector<fs::path>{path("run/checkpoint-" + std::to_string(done))});
    const Outcome resumed =
        shell(on_ranks(2) + "train --steps " + std::to_string(done + 2) + " --resume " + path("run"));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(static_cast<Index>(losses("run").size()), done + 2) << "no step twice, none missing";
  }
}

TEST_F(Resume, TokensSeenGoOnAfterAChangeOfTheBatch) {
  ASSERT_EQ(shell(train(2, "--steps 3 --schedule-steps 5")).exit_code, 0);
  const Outcome resumed = shell(on_ranks(2) + "train --steps 5 --global-batch 8 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  std::vector<Index> seen;
  for (const StepMetrics& step : read_metrics(fs::path(path("run")) / "metrics.jsonl"))
    seen.push_back(step.tokens_seen);
  EXPECT_EQ(seen, (std::vector<Index>{64, 128, 192, 320, 448}));
}

/// The rate of each step, from a run's metrics.
std::vector<double> rates_of(const std::string& run) {
  std::vector<double> rates;
  for (const StepMetrics& step : read_metrics(std::filesystem::path(run) / "metrics.jsonl"))
    rates.push_back(step.learning_rate);
  return rates;
}

TEST_F(Resume, ARateThatNobodySaidIsByWidthSaidInTheLogAndKept) {
  const std::string wide = "--hidden 512 --heads 2 --head-dim 4 --steps 4 ";
  const Outcome whole = shell(train(2, wide));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(count_of(whole.output, "lr=0.0005 warmup=10 reason=\"auto: 0.001 x 256 / hidden_size 512\""), 1u)
      << whole.output;
  EXPECT_EQ(rates_of(path("run")), (std::vector<double>{5e-5, 1e-4, 5e-4 * 3 / 10, 2e-4}));
  const std::string conf = path("run") + "/train.conf";
  const Outcome again = shell(on_ranks(2) + "train --config " + conf + " --run " + path("again"));
  EXPECT_EQ(count_of(again.output, "reason=\"auto:"), 0u) << "train.conf says numbers";
  EXPECT_EQ(losses("again"), losses("run"));
  ASSERT_EQ(shell(train(2, wide + "--overwrite --run " + path("again"))).exit_code, 0);
  EXPECT_EQ(losses("again"), losses("run")) << "no clock decides";
  // A folder's width counts, and a resumed run keeps its rate though it has more steps and no train.conf.
  const std::string model = on_ranks(2) +
                            "train --gmm-rule upstream --seq-len 16 --global-batch 4 --steps 2 --data " +
                            path("corpus.txt") + " --run " + path("folder");
  const Outcome folder = shell(model + " --model " + path("run"));
  EXPECT_EQ(count_of(folder.output, "hidden_size 512"), 1u) << folder.output;
  std::filesystem::remove(path("folder") + "/train.conf");
  const Outcome resumed = shell(model + " --steps 4 --schedule-steps 2 --resume " + path("folder"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "as the resumed run has it"), 1u) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "changed="), 0u) << resumed.output;
  EXPECT_EQ(rates_of(path("folder")), rates_of(path("run")));
}

TEST_F(Resume, ARateThatWasSaidHasNoLineAndTheWarmUpThatItHad) {
  const Outcome run = shell(train(2, "--hidden 512 --lr 1e-3 --steps 4"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count_of(run.output, "warmup="), 0u) << run.output;
  EXPECT_EQ(rates_of(path("run")).front(), 1e-3);
}

}  // namespace
}  // namespace moeloom
