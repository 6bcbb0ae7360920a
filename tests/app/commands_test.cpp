// The program as a person meets it: whole commands under mpirun, good ones and broken ones.
#include "moeloom/app/metrics.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/train/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Outcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

const std::string kProgram = MOELOOM_BINARY_DIR "/moeloom";
constexpr auto kTimeout = 120s;

/// Prefixes: whatever a rank does, the test goes on.
std::string within_time() {
  return "timeout -k 5 " + std::to_string(kTimeout.count()) + " ";
}
std::string alone() {
  return within_time() + kProgram + " ";
}
std::string on_ranks(int ranks) {
  return within_time() + "mpirun -n " + std::to_string(ranks) + " " + kProgram + " ";
}

Outcome shell(const std::string& command) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(("( . " MOELOOM_SOURCE_DIR "/launch/env.sh; " + command + " ) 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  // Not by the exit code: mpirun too answers 137 when a rank was killed.
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout) << command << " hung\n" << outcome.output;
  return outcome;
}

std::vector<std::string> words_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// Processes of this program with `part` in an argument: the ranks, neither mpirun nor the shell.
std::vector<pid_t> ranks_with(const std::string& part) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const auto process = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (process <= 0) continue;
    const std::vector<std::string> words = words_of(process);
    if (words.empty() || words.front() != kProgram) continue;
    if (std::ranges::any_of(words, [&](const std::string& w) { return w.find(part) != std::string::npos; }))
      found.push_back(process);
  }
  return found;
}

/// Whether `holds` comes true in time.
template <typename Condition>
bool soon(std::chrono::seconds time, const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(50ms);
  }
  return true;
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
    setenv("XDG_CACHE_HOME", path("cache").c_str(), 1);  // the user's own stays as it is
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 500; ++i)
      text << "And the weaver drew thread " << i * i % 89 << " through the loom.\n";
  }
  void TearDown() override {
    EXPECT_TRUE(soon(10s, [&] { return ranks_with(folder_.string()).empty(); }))
        << "a rank of this test's runs is left";
    fs::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// `moeloom train` of a tiny model; later flags win over these.
  std::string train(int ranks, const std::string& flags) const {
    return on_ranks(ranks) +
           "train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
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
  const Outcome text = shell(alone() + "generate --model " + path("run") + " --prompt And --tokens 12");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(text.output.starts_with("And")) << text.output;
  const Outcome spread =
      shell(on_ranks(2) + "generate --ep 2 --model " + path("run") + " --prompt And --tokens 12");
  EXPECT_EQ(spread.output, text.output) << "the text does not depend on ep";
  const Outcome inspected = shell(alone() + "inspect " + path("run") + " --ranks 4 --ep 2");
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  EXPECT_NE(inspected.output.find("experts.3.down_proj.weight"), std::string::npos);
}

TEST_F(Commands, AResumedRunHasTheLossesOfOneThatDidNotStop) {
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

TEST_F(Commands, ARunThatGoesOnFromAnEarlierStepLeavesItsOtherCourse) {
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

TEST_F(Commands, AResumedRunSaysWhatItChangesAndKeepsOtherRunsApart) {
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

TEST_F(Commands, AModelFolderWithAConfigAloneSaysThatItsWeightsAreInitial) {
  ASSERT_EQ(shell(train(1, "--steps 1")).exit_code, 0);
  fs::create_directories(path("model"));
  fs::copy(path("run/checkpoint-1/config.json"), path("model/config.json"));
  const std::string from_folder = on_ranks(2) + "train --steps 1 --seq-len 16 --global-batch 4 --data " +
                                  path("corpus.txt") + " --model " + path("model") + " --run " + path("new");
  const Outcome initial = shell(from_folder);
  EXPECT_EQ(initial.exit_code, 0) << initial.output;
  EXPECT_EQ(count_of(initial.output, "[warning] weights=initial reason=\"" + path("model")), 1u)
      << initial.output;
  std::ofstream(path("model/model-00001-of-00002.safetensors")) << "x";
  const Outcome shards = shell(from_folder + " --overwrite");
  EXPECT_NE(shards.exit_code, 0);
  EXPECT_EQ(count_of(shards.output, "holds model-00001-of-00002.safetensors, but no weights"), 1u)
      << shards.output;
}

/// Every measured time of a rate cache, as a machine a hundred times faster would have given it.
void speed_up(const fs::path& cache) {
  Document file = Document::read(cache), rates = file.object("rates");
  for (const std::string& key : rates.keys()) {
    Document seconds = rates.object(key);
    for (const std::string& name : seconds.keys()) seconds.set(name, 0.01 * seconds.number(name));
    rates.set(key, seconds);
  }
  file.set("rates", rates);
  file.write(cache);
}

TEST_F(Commands, AutoKeepsItsRatesAndRevisesADecisionThatTheyMisled) {
  const std::string automatic = "MOELOOM_GMM_PATCH=auto ";
  const Outcome first = shell(automatic + train(2, "--ep 2 --steps 1"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(count_of(first.output, "rates=measured"), 1u) << first.output;
  speed_up(fs::path(path("cache")) / "moeloom" / "gmm-rates.json");
  const Outcome run = shell(automatic + train(2, "--ep 2 --steps 16 --overwrite"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  for (const char* line : {"rates=cached", "gmm_check step=5 predicted_ms=", "gmm_check step=10 ",
                           "gmm_switch step=10 to=", "gmm_switch step=15 to="})
    EXPECT_EQ(count_of(run.output, line), 1u) << line << "\n" << run.output;
  const auto recorded =
      TrainerState::from(Document::read(fs::path(path("run")) / "checkpoint-16" / "trainer_state.json"));
  EXPECT_NE(recorded.gmm_reason.find(" at step 15: measured "), std::string::npos) << recorded.gmm_reason;
  const Outcome resumed = shell(automatic + on_ranks(2) + "train --steps 22 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "as the run recorded: " + recorded.gmm_reason), 2u) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "gmm_check"), 0u) << "a recorded decision is not watched";
  const Outcome anew = shell(automatic + alone() + "kernels --layers 2 --hidden 16 --inter 8 --experts 4 " +
                             "--calibrate yes");
  EXPECT_NE(anew.output.find("rates      measured; " + path("cache")), std::string::npos) << anew.output;
}

TEST_F(Commands, KernelsExplainsEachDecision) {
  const Outcome kernels =
      shell("MOELOOM_GMM_PATCH=1 MOELOOM_FUSED_OPS=0 " + alone() + "kernels --ranks 1 --ep 1");
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
  std::ofstream(path("two.txt")) << "ab";
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
      {"--lr -1 --kernels foo --ep 3 --data " + path("nowhere.txt"),
       {"lr = -1 must be positive", "unknown kernel \"foo\"", "ep = 3 does not divide the 2 ranks",
        "ep = 3 does not divide num_experts = 4", "nowhere.txt"}},
      {"--ep x --lr -1 --dp 2", {"--ep = \"x\": expected a whole number", "lr = -1 must be positive"}},
      {"--config " + path("none.conf") + " --data " + path("nowhere.txt") + " --data-format x --lr -1",
       {"none.conf", "--data-format = \"x\"", "nowhere.txt", "lr = -1"}},
      {"--threads 100000", {"threads = 100000 must be at most 1024"}},
      {"--sample-chars 1000000000", {"sample-chars = 1000000000 must be at most 10000"}},
      {"--on-nan skip --warmup 0 --lr 1e38 --steps 50",
       {"--on-nan skip gave up: 20 steps in a row were not finite"}},
      {"--warmup 0 --lr 1e38 --steps 1", {"the validation loss after step 1 is not finite"}},
      {"--data " + path("two.txt") + " --seq-len 1 --heldout 0",
       {"the training part holds 2 of 2 tokens, fewer than 2 ranks x seq-len + 1 = 3"}},
      {"--hidden 256 --inter 16777216 --experts 4096",
       {"the model does not fit into memory: each of the 2 ranks of a node asks for"}},
  };
  for (const Case& c : cases) {
    const Outcome outcome = shell(train(2, "--overwrite --steps 2 " + c.flags));
    EXPECT_NE(outcome.exit_code, 0) << c.flags << "\n" << outcome.output;
    for (const std::string& said : c.said)
      EXPECT_EQ(count_of(outcome.output, said), 1u) << c.flags << "\n" << outcome.output;
  }
  const Outcome broken = shell(on_ranks(2) + "train --steps 1 --model " + path("broken") + " --data " +
                               path("corpus.txt") + " --run " + path("run"));
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
  const Outcome cut = shell(on_ranks(2) + "train --steps 4 --resume " + path("run"));
  EXPECT_NE(cut.exit_code, 0);
  EXPECT_EQ(count_of(cut.output, "model.safetensors"), 1u) << cut.output;
}

TEST_F(Commands, AKilledRankEndsTheJobAndTheRunGoesOnFromItsCheckpoint) {
  const std::string long_run = train(2, "--ep 2 --steps 100000 --save-every 5 --quiet true");
  std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(long_run); });
  const bool saved = soon(60s, [&] { return !checkpoints_of(path("run")).empty(); });
  const std::vector<pid_t> ranks = ranks_with(path("run"));
  EXPECT_TRUE(saved);
  EXPECT_EQ(ranks.size(), 2u);
  if (!ranks.empty()) kill(ranks.back(), SIGKILL);
  const Outcome killed = job.get();
  EXPECT_NE(killed.exit_code, 0) << killed.output;
  EXPECT_TRUE(soon(10s, [&] { return ranks_with(path("run")).empty(); })) << "the other rank lives on";
  const auto checkpoints = checkpoints_of(path("run"));
  ASSERT_FALSE(checkpoints.empty()) << killed.output;
  const Index done = std::stoll(checkpoints.back().filename().string().substr(11));
  const Outcome resumed = shell(on_ranks(2) + "train --quiet true --steps " + std::to_string(done + 2) +
                                " --resume " + path("run"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(static_cast<Index>(losses("run").size()), done + 2) << "no step twice, none missing";
}

TEST_F(Commands, UnknownCommandsAndHelpAreAnswered) {
  EXPECT_NE(shell(alone() + "fly").exit_code, 0);
  for (const char* command : {"", "train", "generate", "inspect", "convert", "kernels"}) {
    const Outcome help = shell(alone() + command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_GT(help.output.size(), 200u) << command;
    EXPECT_EQ(shell(on_ranks(2) + command + " --help").output, help.output) << "once, on two ranks";
  }
  EXPECT_EQ(count_of(shell(on_ranks(2) + "fly").output, "unknown command"), 1u);
}

TEST_F(Commands, AModelWithoutByteIdsIsAskedInIds) {
  const Outcome run = shell(train(2, "--vocab 512 --steps 2"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("sample=no reason=\"this program has no tokenizer: vocab_size = 512"),
            std::string::npos)
      << run.output;
  const Outcome text = shell(on_ranks(2) + "generate --prompt And --model " + path("run"));
  EXPECT_NE(text.exit_code, 0);
  EXPECT_EQ(count_of(text.output, "vocab_size = 512, and bytes need 256"), 1u) << text.output;
  const Outcome outside =
      shell(alone() + "generate --prompt-ids 1,512 --tokens 99999 --model " + path("run"));
  EXPECT_NE(outside.exit_code, 0);
  EXPECT_EQ(count_of(outside.output, "--prompt-ids holds 512, but ids go from 0 to 511"), 1u);
  EXPECT_EQ(count_of(outside.output, "max_position_embeddings"), 1u) << "in the same answer";
  const Outcome ids = shell(on_ranks(2) + "generate --prompt-ids 1,511,3 --tokens 4 --model " + path("run"));
  EXPECT_EQ(ids.exit_code, 0) << ids.output;
  EXPECT_TRUE(ids.output.starts_with("1,511,3,")) << ids.output;
  EXPECT_EQ(count_of(ids.output, ","), 6u) << ids.output;
}

TEST_F(Commands, RanksShareTheProcessorsOfTheirNode) {
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  for (const int ranks : {1, 2, 4}) {
    const Outcome run = shell("unset OMP_NUM_THREADS; " + train(ranks, "--overwrite --steps 1"));
    const std::string share = std::to_string(std::max(1, processors / ranks)) + " thread(s) a rank";
    EXPECT_NE(run.output.find(share), std::string::npos) << share << "\n" << run.output;
  }
  const std::string asked = train(2, "--overwrite --steps 1");
  EXPECT_EQ(count_of(shell("OMP_NUM_THREADS=3 " + asked).output, " 3 thread(s) a rank"), 1u);
  EXPECT_EQ(count_of(shell("OMP_NUM_THREADS=3 " + asked + " --threads 2").output, " 2 thread(s) a rank"), 1u);
}

TEST_F(Commands, TokensSeenGoOnAfterAChangeOfTheBatch) {
  ASSERT_EQ(shell(train(2, "--steps 3 --schedule-steps 5")).exit_code, 0);
  const Outcome resumed = shell(on_ranks(2) + "train --steps 5 --global-batch 8 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  std::vector<Index> seen;
  for (const StepMetrics& step : read_metrics(fs::path(path("run")) / "metrics.jsonl"))
    seen.push_back(step.tokens_seen);
  EXPECT_EQ(seen, (std::vector<Index>{64, 128, 192, 320, 448}));
}

}  // namespace
}  // namespace moeloom
