// mesh as launch/go-on.sh --elastic asks it: on what of the hosts that are left a run goes on.
#include "moeloom/text/tokenizer.hpp"

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

using testing::alone;
using testing::Outcome;
using testing::shell;

class MeshCommand : public testing::ProgramTest {};

TEST_F(MeshCommand, TakesTheMostRanksThatDivideAndTheNearestMeshThatFits) {
  const std::string run =
      " -- --layers 2 --hidden 64 --inter 512 --heads 2 --kv-heads 1 --head-dim 32 --experts 8 --top-k 2 "
      "--seq-len 64 ";
  struct Case {
    const char* hosts;
    const char* flags;
    const char* said;
  };
  const Case cases[] = {
      {"--slots 2,2", "--ep 4 --global-batch 16",
       "ranks 4\nslots 2,2\nasked --dp 0 --ep 4 --accumulate 1\n"
       "options --dp 0 --ep 4 --accumulate 1\n"},
      {"--slots 2", "--ep 4 --global-batch 16",
       "ranks 2\nslots 2\nasked --dp 0 --ep 4 --accumulate 1\n"
       "options --dp 0 --ep 2 --accumulate 1\n"},
      {"--slots 2,1", "--ep 4 --global-batch 16", "ranks 2\nslots 2,0\n"},
      {"--slots 2,1", "--ep 4 --global-batch 12", "ranks 3\nslots 2,1\n"},
      {"--slots 2,1", "--ep 4 --global-batch 12", "options --dp 0 --ep 3 --accumulate 1\n"},
      {"--slots 3", "--ep 1 --global-batch 12", "options --dp 0 --ep 1 --accumulate 1\n"},
      // 12 sequences of 3 ranks in two micro-batches, and of 1 rank in as many.
      {"--slots 3", "--ep 1 --accumulate 2 --global-batch 12", "options --dp 0 --ep 1 --accumulate 2\n"},
      {"--slots 1", "--ep 1 --accumulate 2 --global-batch 12", "ranks 1\n"},
      // A rank's micro-batch is whole leaves of the exact sums: not 4 of 12 sequences, but 6 and 12.
      {"--slots 3", "--ep 1 --exact 6 --global-batch 12", "ranks 2\nslots 2\n"},
      {"--slots 3", "--ep 1 --exact 6 --accumulate 2 --global-batch 12", "ranks 1\nslots 1\n"},
      {"--slots 3", "--ep 1 --exact 2 --global-batch 12", "ranks 3\nslots 3\n"},
      // More slots than anybody counts down from.
      {"--slots 1000000000000,2", "--ep 4 --global-batch 16", "ranks 16\nslots 16,0\n"},
      // Too little memory for as many tokens at once.
      {"--slots 2 --host-memory 150MiB", "--ep 2 --global-batch 256", "ranks 2\n"},
      {"--slots 2 --host-memory 150MiB", "--ep 2 --global-batch 256",
       "options --dp 0 --ep 2 --accumulate 8\n"}};
  for (const Case& c : cases) {
    const Outcome mesh = shell(alone() + "mesh " + c.hosts + run + c.flags);
    EXPECT_EQ(mesh.exit_code, 0) << mesh.output;
    EXPECT_NE(mesh.output.find(c.said), std::string::npos) << c.hosts << " " << c.flags << ":\n"
                                                           << mesh.output;
  }
  const Outcome none =
      shell(alone() + "mesh --slots 2 --host-memory 60MiB" + run + "--ep 2 --global-batch 16");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.output.find("no mesh of 1 to 2 ranks fits"), std::string::npos) << none.output;
  const Outcome many = shell(alone() + "mesh --slots 9223372036854775807,2" + run + "--ep 2");
  EXPECT_NE(many.output.find("--slots must be a list of 1 to "), std::string::npos) << many.output;
}

/// The rows of embedding and head are the tokenizer's, as train makes them, and not those of bytes.
TEST_F(MeshCommand, AModelFromFlagsHasTheVocabularyOfItsTokenizer) {
  const std::string tokenizer =
      std::string(MOELOOM_SOURCE_DIR) + "/tests/data/text/tokenizers/tiny-bytelevel-qwen2";
  const Index vocabulary = Tokenizer::load(tokenizer + "/tokenizer.json").vocabulary_size();
  ASSERT_GT(vocabulary, 256);
  const auto needs = [](const std::string& flags) {
    const Outcome mesh = shell(alone() +
                               "mesh --slots 2 -- --layers 1 --hidden 512 --inter 64 --heads 2 --kv-heads 1 "
                               "--head-dim 32 --experts 4 --top-k 2 --seq-len 64 --ep 2 --global-batch 16 " +
                               flags);
    EXPECT_EQ(mesh.exit_code, 0) << mesh.output;
    return mesh.output.substr(std::min(mesh.output.find("needs "), mesh.output.size()));
  };
  EXPECT_EQ(needs("--tokenizer " + tokenizer), needs("--vocab " + std::to_string(vocabulary)));
  EXPECT_NE(needs("--tokenizer " + tokenizer), needs(""));
  EXPECT_EQ(needs("--tokenizer " + tokenizer + " --vocab 100000"), needs("--vocab 100000"));
}

TEST_F(MeshCommand, ARunGoesOnWithItsBatchAtTheMeshThatItSays) {
  const Outcome first = shell(train(4, "--ep 4 --steps 4 --save-every 2 --global-batch 8"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const Outcome mesh = shell(alone() + "mesh --slots 2 -- --resume " + path("run"));
  ASSERT_EQ(mesh.exit_code, 0) << mesh.output;
  EXPECT_NE(mesh.output.find("options --dp 0 --ep 2 --accumulate 1"), std::string::npos) << mesh.output;
  const Outcome other = shell(testing::on_ranks(2) + "train --resume " + path("run") +
                              " --steps 6 --dp 0 --ep 2 --accumulate 1");
  ASSERT_EQ(other.exit_code, 0) << other.output;
  EXPECT_EQ(losses("run").size(), 6u);
}

TEST_F(MeshCommand, RefusesQuestionsWithoutARun) {
  const Outcome nothing = shell(alone() + "mesh --slots 2,0");
  EXPECT_EQ(nothing.exit_code, 1);
  for (const char* said : {"--slots must be a list", "the options of train are missing"})
    EXPECT_NE(nothing.output.find(said), std::string::npos) << nothing.output;
}

}  // namespace
}  // namespace moeloom
