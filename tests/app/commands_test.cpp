// The program as a person meets it: whole commands under mpirun, good ones and broken ones.
#include "moeloom/app/metrics.hpp"
#include "moeloom/train/checkpoint.hpp"

#include <algorithm>
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

/// Every measured time of a rate cache, as a machine a hundred times slower would have given it.
void slow_down(const fs::path& cache) {
  Document file = Document::read(cache), rates = file.object("rates");
  for (const std::string& key : rates.keys()) {
    Document seconds = rates.object(key);
    for (const std::string& name : seconds.keys()) seconds.set(name, 100 * seconds.number(name));
    rates.set(key, seconds);
  }
  file.set("rates", rates);
  file.write(cache);
}

TEST_F(Commands, AutoKeepsItsRatesAndRevisesADecisionThatTheyMisled) {
  const std::string with_cache = "XDG_CACHE_HOME=" + path("cache") + " MOELOOM_GMM_PATCH=auto ";
  const Outcome first = shell(with_cache + train(2, "--ep 2 --steps 1"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(count_of(first.output, "rates=measured"), 1u) << first.output;
  slow_down(fs::path(path("cache")) / "moeloom" / "gmm-rates.json");
  const Outcome run = shell(with_cache + train(2, "--ep 2 --steps 16 --overwrite"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  for (const char* line : {"rates=cached", "gmm_check step=5 predicted_ms=", "gmm_check step=10 ",
                           "gmm_switch step=10 to=", "gmm_switch step=15 to="})
    EXPECT_EQ(count_of(run.output, line), 1u) << line << "\n" << run.output;
  const auto recorded =
      TrainerState::from(Document::read(fs::path(path("run")) / "checkpoint-16" / "trainer_state.json"));
  EXPECT_NE(recorded.gmm_reason.find(" at step 15: measured "), std::string::npos) << recorded.gmm_reason;
  EXPECT_EQ(std::ranges::count(recorded.kernels, "fused_moe"), recorded.gmm_applied ? 1 : 0);
  const Outcome resumed =
      shell(with_cache + "mpirun -n 2 " + program() + " train --steps 22 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "as the run recorded: " + recorded.gmm_reason), 2u) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "gmm_check"), 0u) << "a recorded decision is not watched";
  const Outcome anew = shell(with_cache + program() +
                             " kernels --layers 2 --hidden 16 --inter 8 --experts 4 " + "--calibrate yes");
  EXPECT_NE(anew.output.find("rates      measured; " + path("cache")), std::string::npos) << anew.output;
}

TEST_F(Commands, KernelsExplainsEachDecision) {
  const Outcome kernels =
      shell("MOELOOM_GMM_PATCH=1 MOELOOM_FUSED_OPS=0 " + program() + " kernels --ranks 1 --ep 1");
  EXPECT_EQ(kernels.exit_code, 0) << kernels.output;
  for (const char* part : {"fused_moe", "npu_fused_swiglu", "MOELOOM_FUSED_OPS", "not applied", "ep = 1"})
    EXPECT_NE(kernels.output.find(part), std::string::npos) << part << "\n" << kernels.output;
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
