// `train --exact`: the files of a checkpoint on numbers of ranks that are no powers of two.
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

std::string content_of(const fs::path& file) {
  std::ostringstream content;
  content << std::ifstream(file, std::ios::binary).rdbuf();
  return content.str();
}

class ExactCommand : public testing::ProgramTest {
 protected:
  Outcome train(int ranks, const std::string& run, const std::string& options) {
    return shell(on_ranks(ranks) +
                 "train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 6 "
                 "--top-k 2 --seq-len 16 --global-batch 6 --aux-loss-over sequence --z-loss-coef 0.001 "
                 "--steps 6 --save-every 0 --eval-sequences 5 --eval-every 3 --sample-chars 0 --data " +
                 path("corpus.txt") + " --run " + path(run) + " " + options);
  }
  std::string file_of(const std::string& run, const std::string& name) const {
    return content_of(fs::path(path(run)) / "checkpoint-6" / name);
  }
};

TEST_F(ExactCommand, WritesTheSameCheckpointOnAnyNumberOfRanks) {
  struct Case {
    int ranks;
    const char* options;
  };
  const std::vector<Case> cases = {{1, ""},
                                   {2, "--ep 2"},
                                   {3, "--ep 3"},
                                   {6, "--ep 3"},
                                   {6, "--ep 2 --mesh-order ep,dp --dispatcher alltoall"},
                                   {2, "--ep 2 --rebalance"},
                                   {6, "--ep 3 --rebalance --dispatcher alltoall --net 100000Gbit,1us"},
                                   {2, "--accumulate 3"},
                                   {2, "--ep 2 --accumulate 3"}};
  std::map<std::string, std::string> reference;
  for (const Case& c : cases) {
    const std::string name = "run-" + std::to_string(&c - cases.data());
    const Outcome outcome = train(c.ranks, name, std::string("--exact 1 ") + c.options);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "exact=1 reason=\"the same bits on every mesh"), 1u) << outcome.output;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string content = file_of(name, file);
      ASSERT_FALSE(content.empty()) << c.ranks << " ranks " << c.options;
      const auto [first, is_first] = reference.emplace(file, content);
      EXPECT_TRUE(first->second == content) << file << " differs: " << c.ranks << " ranks " << c.options;
    }
  }
  ASSERT_EQ(train(1, "other", "--exact 1 --seed 1").exit_code, 0);
  EXPECT_NE(file_of("other", "model.safetensors"), reference.at("model.safetensors"));
}

TEST_F(ExactCommand, RefusesWhatAddsInAnOrderOfItsOwn) {
  struct Case {
    const char* options;
    const char* refusal;
  };
  for (const Case& c : {Case{"--kernels none", "needs the kernel fused_moe"},
                        Case{"--exact 2", "do not divide the 3 of a rank's micro-batch"},
                        Case{"--accumulate 3 --record-routing x.rt", "--record-routing"}}) {
    const Outcome outcome = train(2, "refused", std::string("--exact 1 ") + c.options);
    EXPECT_NE(outcome.exit_code, 0) << c.options;
    EXPECT_NE(outcome.output.find(c.refusal), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace moeloom
