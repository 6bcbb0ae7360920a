// The program as a person runs it, for the tests of whole commands: shell lines, what they said, and the
// processes that they leave.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "record/exit_code.hpp"
#include "record/metrics.hpp"
#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

struct Outcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

inline const std::string kProgram = MOELOOM_BINARY_DIR "/moeloom";
/// Of a command; several times what the longest takes beside thrice as much to do as there are processors.
constexpr std::chrono::seconds kTimeout{600};

/// Prefixes: whatever a rank does, the test goes on.
inline std::string within_time() {
  return "timeout -k 5 " + std::to_string(kTimeout.count()) + " ";
}
inline std::string alone() {
  return within_time() + kProgram + " ";
}
inline std::string on_ranks(int ranks) {
  return within_time() + "mpirun -n " + std::to_string(ranks) + " " + kProgram + " ";
}
/// Two programs in one job, on a rank each. A shell chooses, because `mpirun -n 1 A : -n 1 B` of Open
/// MPI 5.0.7 ends in a segmentation fault.
inline std::string on_two_ranks(const std::string& first, const std::string& second) {
  return within_time() + "mpirun -n 2 sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec " + first +
         " ;; *) exec " + second + " ;; esac' ";
}

inline Outcome shell(const std::string& command) {
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

inline std::vector<std::string> words_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// In which what a job leaves is over. Its own watcher would end it after a minute.
constexpr std::chrono::seconds kUntilGone{40};

/// Processes of this program with `part` in an argument: the ranks, neither mpirun nor the shell.
inline std::vector<pid_t> ranks_with(const std::string& part) {
  std::vector<pid_t> found;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator("/proc")) {
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
bool soon(const Condition& holds, std::chrono::seconds time = kTimeout / 2) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

/// A folder with a small corpus, removed afterwards, and what runs in it.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("moeloom-commands-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    setenv("XDG_CACHE_HOME", path("cache").c_str(), 1);  // the user's own stays as it is
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 500; ++i)
      text << "And the weaver drew thread " << i * i % 89 << " through the loom.\n";
  }
  void TearDown() override {
    EXPECT_TRUE(soon([&] { return ranks_with(folder_.string()).empty(); }, kUntilGone))
        << "a rank of this test's runs is left";
    std::filesystem::remove_all(folder_);
  }

  /// words/ with a tokenizer and a chat template, and sixty conversations in chats.jsonl.
  void write_words_and_chats() const {
    const std::filesystem::path tokenizer =
        std::filesystem::path(MOELOOM_SOURCE_DIR) / "tests/data/text/tokenizers/tiny-bytelevel-qwen2";
    std::filesystem::create_directories(path("words"));
    std::filesystem::copy_file(tokenizer / "tokenizer.json", path("words") + "/tokenizer.json");
    std::ofstream(path("words") + "/chat_template.jinja")
        << "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
           "{% if add_generation_prompt %}<assistant>{% endif %}";
    std::ofstream chats(path("chats.jsonl"));
    for (int i = 0; i < 60; ++i)
      chats << R"({"messages":[{"role":"user","content":"thread )" << i
            << R"(?"},{"role":"assistant","content":"drew )" << i * i << "\"}]}\n";
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// `moeloom train` of a tiny model; later flags win over these, --data too.
  std::string train(int ranks, const std::string& flags) const {
    return on_ranks(ranks) +
           "train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
           " --seq-len 16 --global-batch 4 --eval-sequences 4 --sample-chars 20 --gmm-rule upstream" +
           (flags.find("--data ") == std::string::npos ? " --data " + path("corpus.txt") : std::string()) +
           " --run " + path("run") + " " + flags;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const StepMetrics& step : read_metrics(std::filesystem::path(path(run)) / "metrics.jsonl"))
      all.push_back(step.loss);
    return all;
  }

  std::filesystem::path folder_;
};

}  // namespace moeloom::testing
