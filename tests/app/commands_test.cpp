// The program as a person meets it: whole commands under mpirun, good ones and broken ones.
#include "moeloom/app/metrics.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/train/checkpoint.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("( . " MOELOOM_SOURCE_DIR "/launch/env.sh; " + command + " ) 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

/// A folder with a small corpus, removed afterwards.
class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("moeloom-commands-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 500; ++i)
      text << "And the weaver drew thread " << i * i % 89 << " through the loom.\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string program() const { return MOELOOM_BINARY_DIR "/moeloom"; }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// `moeloom train` of a tiny model; later flags win over these.
  std::string train(int ranks, const std::string& flags) const {
    return "timeout -k 5 120 mpirun -n " + std::to_string(ranks) + " " + program() +
           " train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
           " --seq-len 16 --global-batch 4 --eval-sequences 4 --sample-chars 20 --gmm-rule upstream --data " +
           path("corpus.txt") + " --run " + path("run") + " " + flags;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const StepMetrics& step : read_metrics(fs::path(path(run)) / "metrics.jsonl"))
      all.push_back(step.loss);
    return all;
  }

  fs::path folder_;
};

TEST_F(Commands, TrainLeavesMetricsAReportAndACheckpointThatGenerateAndInspectRead) {
  const Outcome run = shell(train(2, "--ep 2 --steps 6 --save-every 3 --eval-every 3"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("val_loss"), std::string::npos) << run.output;
  EXPECT_EQ(losses("run").size(), 6u);
  for (const char* file : {"report.html", "train.log", "train.conf", "checkpoint-6/model.safetensors"})
    EXPECT_TRUE(fs::exists(fs::path(path("run")) / file)) << file;
  const Outcome text = shell(program() + " generate --model " + path("run") + " --prompt And --tokens 12");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(text.output.starts_with("And")) << text.output;
  const Outcome spread = shell("mpirun -n 2 " + program() + " generate --ep 2 --model " + path("run") +
                               " --prompt And --tokens 12");
  EXPECT_EQ(spread.output, text.output) << "the text does not depend on ep";
  const Outcome inspected = shell(program() + " inspect " + path("run") + " --ranks 4 --ep 2");
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  EXPECT_NE(inspected.output.find("experts.3.down_proj.weight"), std::string::npos);
}

TEST_F(Commands, AResumedRunHasTheLossesOfOneThatDidNotStop) {
  ASSERT_EQ(shell(train(2, "--ep 2 --steps 8 --schedule-steps 8")).exit_code, 0);
  const std::vector<double> whole = losses("run");
  ASSERT_EQ(shell(train(2, "--ep 2 --steps 4 --schedule-steps 8 --run " + path("part"))).exit_code, 0);
  fs::copy(path("part"), path("elsewhere"), fs::copy_options::recursive);
  const std::string program_path = program();
  const Outcome same = shell("mpirun -n 2 " + program_path + " train --steps 8 --resume " + path("part"));
  ASSERT_EQ(same.exit_code, 0) << same.output;
  EXPECT_EQ(losses("part"), whole) << "bit for bit on the same mesh";
  const Outcome other =
      shell("mpirun -n 4 " + program_path + " train --steps 8 --ep 4 --resume " + path("elsewhere"));
  ASSERT_EQ(other.exit_code, 0) << other.output;
  const std::vector<double> moved = losses("elsewhere");
  ASSERT_EQ(moved.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(moved[i], whole[i], 1e-5 * whole[i]) << "step " << i;
}

TEST_F(Commands, KernelsExplainsEachDecision) {
  const Outcome kernels =
      shell("MOELOOM_GMM_PATCH=1 MOELOOM_FUSED_OPS=0 " + program() + " kernels --ranks 1 --ep 1");
  EXPECT_EQ(kernels.exit_code, 0) << kernels.output;
  for (const char* part : {"fused_moe", "npu_fused_swiglu", "MOELOOM_FUSED_OPS", "not applied", "ep = 1"})
    EXPECT_NE(kernels.output.find(part), std::string::npos) << part << "\n" << kernels.output;
}

TEST_F(Commands, Bf16TrainsAsFp32DoesAndWithTheSameBitsAtEveryEpAndThreadCount) {
  const std::string grouped = "MOELOOM_GMM_PATCH=force ", emulated = grouped + "MOELOOM_BF16=emulate ";
  const auto trained = [&](const std::string& environment, const std::string& flags) {
    const Outcome run = shell(environment + train(4, "--overwrite true --steps 20 --lr 0.02 " + flags));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return losses("run");
  };
  const std::vector<double> fp32 = trained(grouped, "--ep 4");
  const std::vector<double> bf16 = trained(emulated, "--ep 4 --dtype bf16");
  ASSERT_EQ(fp32.size(), 20u);
  ASSERT_EQ(bf16.size(), 20u);
  EXPECT_LT(fp32.back(), 0.8 * fp32.front()) << "it must have learned something for this to be a test";
  EXPECT_NE(bf16, fp32);
  for (std::size_t i = 0; i < bf16.size(); ++i) EXPECT_NEAR(bf16[i], fp32[i], 0.02 * fp32[i]) << "step " << i;
  const TrainerState saved =
      TrainerState::from(Document::read(fs::path(path("run")) / "checkpoint-20" / "trainer_state.json"));
  EXPECT_EQ(saved.dtype, "bf16");
  EXPECT_EQ(trained(emulated, "--ep 1 --dtype bf16"), bf16);
  EXPECT_EQ(trained(emulated, "--ep 2 --dtype bf16"), bf16);
  EXPECT_EQ(trained(emulated, "--ep 4 --dtype bf16 --threads 3"), bf16);
}

TEST_F(Commands, WhatBf16CannotRunOnIsSaidAndRunsInFp32) {
  const Outcome loop =
      shell("MOELOOM_GMM_PATCH=0 MOELOOM_BF16=emulate " + train(1, "--steps 1 --dtype bf16"));
  EXPECT_EQ(loop.exit_code, 0) << loop.output;
  EXPECT_EQ(count_of(loop.output, "dtype=fp32 reason=\"bf16 was asked for; only fused_moe has it"), 1u)
      << loop.output;
  if (cpu_has_bf16()) return;
  const Outcome cpu = shell("MOELOOM_GMM_PATCH=force " + train(1, "--overwrite true --steps 1 --dtype bf16"));
  EXPECT_EQ(count_of(cpu.output, "dtype=fp32 reason=\"bf16 was asked for; " + std::string(why_no_bf16())), 1u)
      << cpu.output;
}

TEST_F(Commands, BadInputGetsOneMessageFromOneRankAndAnExitCode) {
  std::ofstream(path("empty.txt")).close();
  fs::create_directories(path("broken"));
  std::ofstream(fs::path(path("broken")) / "config.json") << "{\"model_type\": \"qwen3_moe\"";
  std::ofstream(path("a-file")) << "x";
  struct Case {
    std::string flags;
    std::vector<std::string> said;  // every one, once
  };
  const std::vector<Case> cases = {
      {"--ep 3", {"ep = 3 does not divide num_experts = 4; choose ep from 1, 2, 4"}},
      {"--ep 3 --top-k 9 --lr 0", {"ep = 3 does not divide the 2 ranks", "num_experts_per_tok", "lr = 0"}},
      {"--global-batch 3", {"global-batch = 3 sequences do not divide over 2 ranks"}},
      {"--data " + path("nothing.txt"), {"nothing.txt"}},
      {"--data " + path("empty.txt"), {"empty.txt"}},
      {"--seq-len 100000", {"the training part holds", "the held-out part holds"}},
      {"--kernels fused_mlp",
       {"unknown kernel \"fused_mlp\"; known: fused_moe, fused_rmsnorm, fused_rope, fused_swiglu"}},
      {"--kernels fused_moe --ep 1", {"fused_moe"}},
      {"--run " + path("a-file") + "/run", {"a-file/run"}},
      {"--resume " + path("nowhere"), {"nowhere"}},
      {"--no-such-option 1", {"no-such-option"}},
      {"--vocab 60", {"holds token id"}},
  };
  for (const Case& c : cases) {
    const Outcome outcome = shell(train(2, "--steps 2 " + c.flags));
    EXPECT_NE(outcome.exit_code, 0) << c.flags << "\n" << outcome.output;
    EXPECT_NE(outcome.exit_code, 124) << c.flags << " hung";
    for (const std::string& said : c.said)
      EXPECT_EQ(count_of(outcome.output, said), 1u) << c.flags << "\n" << outcome.output;
  }
  const Outcome broken = shell("mpirun -n 2 " + program() + " train --steps 1 --model " + path("broken") +
                               " --data " + path("corpus.txt") + " --run " + path("run"));
  EXPECT_NE(broken.exit_code, 0);
  EXPECT_NE(broken.output.find("config.json"), std::string::npos) << broken.output;
}

TEST_F(Commands, DamagedWeightsAreNamedAndNothingIsOverwritten) {
  ASSERT_EQ(shell(train(1, "--steps 2")).exit_code, 0);
  const Outcome again = shell(train(1, "--steps 2"));
  EXPECT_NE(again.exit_code, 0) << "a run folder that is in use must be refused";
  EXPECT_NE(again.output.find("--overwrite"), std::string::npos) << again.output;
  const fs::path weights = fs::path(path("run")) / "checkpoint-2" / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 100);
  const Outcome cut = shell("mpirun -n 2 " + program() + " train --steps 4 --resume " + path("run"));
  EXPECT_NE(cut.exit_code, 0);
  EXPECT_EQ(count_of(cut.output, "model.safetensors"), 1u) << cut.output;
}

TEST_F(Commands, AKilledRankEndsTheJobAndTheRunGoesOnFromItsCheckpoint) {
  const std::string long_run = train(2, "--ep 2 --steps 100000 --save-every 5 --quiet true");
  const Outcome killed =
      shell(long_run + " & job=$!; for i in $(seq 100); do ls -d " + path("run") +
            "/checkpoint-* >/dev/null 2>&1 && break; sleep 0.2; done; pkill -9 -n -f 'moeloom train.*" +
            path("run") + "'; wait $job");
  EXPECT_NE(killed.exit_code, 0) << killed.output;
  EXPECT_NE(killed.exit_code, 124) << "the job hung";
  const auto checkpoints = checkpoints_of(path("run"));
  ASSERT_FALSE(checkpoints.empty()) << killed.output;
  const Index done = std::stoll(checkpoints.back().filename().string().substr(11));
  const Outcome resumed = shell("mpirun -n 2 " + program() + " train --quiet true --steps " +
                                std::to_string(done + 2) + " --resume " + path("run"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(static_cast<Index>(losses("run").size()), done + 2) << "no step twice, none missing";
}

TEST_F(Commands, UnknownCommandsAndHelpAreAnswered) {
  EXPECT_NE(shell(program() + " fly").exit_code, 0);
  for (const char* command : {"", "train", "generate", "inspect", "kernels"}) {
    const Outcome help = shell(program() + " " + command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_GT(help.output.size(), 200u) << command;
  }
}

}  // namespace
}  // namespace moeloom
