// Two runs of one configuration, each as on a machine that has measured nothing yet: the checkpoints are the
// same files.
#include "train/checkpoint/checkpoint.hpp"

#include <map>
#include <sstream>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

/// Name -> content, of everything in a folder.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ostringstream content;
    content << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files[fs::relative(entry.path(), folder).string()] = content.str();
  }
  return files;
}

constexpr Index kSteps = 16;  // measure would have tried the other path of the experts by then

class SameRun : public testing::ProgramTest {
 protected:
  /// Of two ranks with ep = 2, no flag set, and a cache of its own -> its checkpoint's files.
  std::map<std::string, std::string> checkpoint_of(const std::string& name, const std::string& options) {
    const std::string without_flags =
        "unset MOELOOM_PATCH MOELOOM_FUSED_OPS MOELOOM_GMM_PATCH MOELOOM_BF16 "
        "MOELOOM_PRETEND_NODES TWINKLE_NPU_PATCH TWINKLE_NPU_FUSED_OPS TWINKLE_NPU_GMM_PATCH; ";
    const Outcome run = shell(without_flags + "export XDG_CACHE_HOME=" + path(name + "-cache") + "; " +
                              on_ranks(2) + "train --ep 2 --steps " + std::to_string(kSteps) +
                              " --save-every 0 --eval-sequences 4 --sample-chars 0 --data " +
                              path("corpus.txt") + " --run " + path(name) + " " + options);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, "gmm_request=\"auto: no flag is set"), 1u) << run.output;
    EXPECT_EQ(count_of(run.output, "gmm=yes reason=\"a rank's expert weights ("), 1u) << run.output;
    EXPECT_FALSE(fs::exists(path(name + "-cache"))) << "something was measured\n" << run.output;
    const fs::path checkpoint = fs::path(path(name)) / ("checkpoint-" + std::to_string(kSteps));
    EXPECT_TRUE(is_checkpoint(checkpoint)) << run.output;
    return fs::exists(checkpoint) ? files_of(checkpoint) : std::map<std::string, std::string>();
  }
};

TEST_F(SameRun, TwoDefaultRunsWriteTheSameCheckpoint) {
  struct Case {
    const char* name;
    const char* options;
  };
  const std::vector<Case> cases = {
      {"tiny",
       "--layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2 "
       "--seq-len 16 --global-batch 4"},
      {"packed",
       "--layers 1 --hidden 32 --inter 16 --heads 2 --kv-heads 1 --head-dim 16 --experts 4 --top-k 2 "
       "--seq-len 16 --global-batch 8 --accumulate 4"},
      {"quickstart",  // a layer of its size
       "--layers 1 --hidden 256 --inter 256 --heads 8 --kv-heads 4 --head-dim 32 --experts 8 --top-k 2 "
       "--seq-len 64 --global-batch 4"}};
  for (const Case& c : cases) {
    const std::string name = c.name;
    const auto first = checkpoint_of(name + "-first", c.options);
    const auto second = checkpoint_of(name + "-second", c.options);
    for (const char* file :
         {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"})
      EXPECT_TRUE(first.contains(file) && !first.at(file).empty()) << name << ": no " << file;
    for (const auto& [file, content] : first)
      EXPECT_TRUE(second.contains(file) && second.at(file) == content) << name << ": " << file << " differs";
    EXPECT_EQ(first.size(), second.size()) << name;
    const auto other = checkpoint_of(name + "-other", std::string(c.options) + " --seed 1");
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"})
      EXPECT_TRUE(other.contains(file) && other.at(file) != first.at(file)) << name << ": " << file;
  }
}

}  // namespace
}  // namespace moeloom
