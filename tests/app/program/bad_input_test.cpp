// What a person got wrong, or a disk damaged: every command ends with one message and an exit code.
#include <string>
#include <vector>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class BadInput : public testing::ProgramTest {};

TEST_F(BadInput, GetsOneMessageFromOneRankAndAnExitCode) {
  std::ofstream(path("empty.txt")).close();
  fs::create_directories(path("broken"));
  std::ofstream(fs::path(path("broken")) / "config.json") << "{\"model_type\": \"qwen3_moe\"";
  std::ofstream(path("a-file")) << "x";
  std::ofstream(path("two.txt")) << "ab";
  struct Case {
    std::string flags;
    std::vector<std::string> said;  // every one, once
    int exit_code = kFailedExitCode;
  };
  const std::vector<Case> cases = {
      {"--ep 2 --experts 1 --top-k 1", {"ep = 2 is more than num_experts = 1"}},
      {"--ep 3 --top-k 9 --lr 0", {"ep = 3 does not divide the 2 ranks", "num_experts_per_tok", "lr = 0"}},
      {"--global-batch 3", {"global-batch = 3 sequences do not divide over 2 ranks"}},
      {"--data " + path("nothing.txt"), {"nothing.txt"}, kDataExitCode},
      {"--data " + path("empty.txt"), {"empty.txt"}, kDataExitCode},
      {"--seq-len 100000", {"the training part holds", "the held-out part holds"}},
      {"--kernels fused_mlp",
       {"unknown kernel \"fused_mlp\"; known: fused_moe, fused_rmsnorm, fused_rope, fused_swiglu"}},
      {"--kernels fused_moe --ep 1", {"fused_moe"}},
      {"--run " + path("a-file") + "/run", {"a-file/run"}, kDataExitCode},
      {"--resume " + path("nowhere"), {"nowhere"}, kDataExitCode},
      {"--no-such-option 1", {"no-such-option"}},
      {"--vocab 60", {"holds token id"}},
      {"--lr -1 --kernels foo --ep 3 --data " + path("nowhere.txt"),
       {"lr = -1 must be positive", "unknown kernel \"foo\"", "ep = 3 does not divide the 2 ranks",
        "nowhere.txt"}},
      {"--ep x --layer 3 --lr -1", {"--ep = \"x\": expected a whole number", "unknown option \"--layer\""}},
      {"--config " + path("none.conf") + " --data " + path("nowhere.txt") + " --data-format x --lr -1",
       {"none.conf", "--data-format = \"x\""}},
      {"--threads 100000", {"threads = 100000 must be at most 1024"}},
      {"--sample-chars 1000000000", {"sample-chars = 1000000000 must be at most 10000"}},
      {"--on-nan skip --warmup 0 --lr 1e38 --steps 50",
       {"--on-nan skip gave up: 20 steps in a row were not finite"}},
      {"--on-nan skip --warmup 0 --lr 1e38 --steps 3 --heldout 0",
       {"the loss of the last step, 2, is not finite, and nothing was saved"}},
      {"--warmup 0 --lr 1e38 --steps 1", {"the validation loss after step 1 is not finite"}},
      {"--data " + path("two.txt") + " --seq-len 1 --heldout 0",
       {"the training part holds 2 of 2 tokens, fewer than 2 ranks x sequence length (--seq-len) + 1 = 3",
        "another held-out fraction (--heldout)"}},
      {"--hidden 256 --inter 16777216 --experts 4096",
       {"left for each rank, less than the ", "  expert weights  ", "MiB is enough as it is"}},
  };
  for (const Case& c : cases) {
    const Outcome outcome = shell(train(2, "--overwrite --steps 2 " + c.flags));
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.flags << "\n" << outcome.output;
    for (const std::string& said : c.said)
      EXPECT_EQ(count_of(outcome.output, said), 1u) << c.flags << "\n" << outcome.output;
  }
  const Outcome broken = shell(on_ranks(2) + "train --overwrite --steps 1 --model " + path("broken") +
                               " --data " + path("corpus.txt") + " --run " + path("run"));
  EXPECT_EQ(broken.exit_code, kDataExitCode);
  EXPECT_NE(broken.output.find("config.json"), std::string::npos) << broken.output;
}

TEST_F(BadInput, DamagedWeightsAreNamedAndNothingIsOverwritten) {
  ASSERT_EQ(shell(train(1, "--steps 2")).exit_code, 0);
  const Outcome again = shell(train(1, "--steps 2"));
  EXPECT_NE(again.exit_code, 0) << "a run folder that is in use must be refused";
  EXPECT_NE(again.output.find("--overwrite"), std::string::npos) << again.output;
  const fs::path weights = fs::path(path("run")) / "checkpoint-2" / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 100);
  const Outcome cut = shell(on_ranks(2) + "train --steps 4 --resume " + path("run"));
  EXPECT_EQ(cut.exit_code, kDataExitCode);
  EXPECT_EQ(count_of(cut.output, "model.safetensors"), 1u) << cut.output;
}

TEST_F(BadInput, AModelThatIsAskedIsDamagedOrMissingForEveryCommandAlike) {
  ASSERT_EQ(shell(train(1, "--steps 2 --export " + path("plain"))).exit_code, 0);
  const fs::path whole = fs::path(path("run")) / "checkpoint-2";
  const auto damage = [&](const std::string& name, const fs::path& from, const std::string& file) {
    fs::copy(from, path(name), fs::copy_options::recursive);
    fs::resize_file(fs::path(path(name)) / file, fs::file_size(fs::path(path(name)) / file) - 50);
  };
  damage("cut-weights", whole, "model.safetensors");
  damage("cut-config", path("plain"), "config.json");
  damage("cut-plain-weights", path("plain"), "model.safetensors");
  fs::create_directories(path("cut-run"));
  fs::copy(whole, path("cut-run") + "/checkpoint-2", fs::copy_options::recursive);
  fs::resize_file(fs::path(path("cut-run")) / "checkpoint-2" / "config.json", 40);
  struct Command {
    std::string words;
    bool reads_weights;  // of a model of bytes: chat has no template to begin with
  };
  const std::vector<Command> commands = {
      {"generate --tokens 2 --model ", true},
      {"eval --seq-len 16 --data " + path("corpus.txt") + " --model ", true},
      {"chat --message a --model ", false}};
  for (const auto& [words, reads_weights] : commands)
    for (const char* model : {"cut-weights", "cut-config", "cut-run", "nowhere", "cut-plain-weights"}) {
      if (!reads_weights && model == std::string("cut-plain-weights")) continue;
      // One rank alone says it as two do: once a command is enough.
      for (const int ranks : model == std::string("cut-weights") ? std::vector{1, 2} : std::vector{2}) {
        const Outcome refused = shell(on_ranks(ranks) + words + path(model));
        EXPECT_EQ(refused.exit_code, kDataExitCode) << words << model << "\n" << refused.output;
        EXPECT_NE(refused.output.find(path(model)), std::string::npos) << refused.output;
      }
    }
  const Outcome request = shell(on_ranks(2) + "generate --tokens -1 --model " + path("cut-weights"));
  EXPECT_EQ(request.exit_code, kFailedExitCode) << "the request is wrong too\n" << request.output;
}

}  // namespace
}  // namespace moeloom
