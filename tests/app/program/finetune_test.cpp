// A program that is not ours: examples/finetune.cpp has the losses, the weights and the manners of `moeloom
// train`.
#include "io/text_file.hpp"

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class Finetune : public testing::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write_words_and_chats();
    const Outcome made = shell(train(1, "--gmm-rule auto --steps 1 --seq-len 64 --tokenizer " +
                                            path("words") + " --export " + path("model")));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  std::string finetune(const std::string& tuned, Index steps) const {
    const std::string program = on_ranks(2);
    return program.substr(0, program.rfind(testing::kProgram)) + MOELOOM_BINARY_DIR + "/examples/finetune " +
           path("model") + " " + path("chats.jsonl") + " " + path(tuned) + " " + std::to_string(steps);
  }
};

TEST_F(Finetune, HasTheBitsOfTheProgramsSameJob) {
  const Outcome example = shell(finetune("tuned", 6));
  ASSERT_EQ(example.exit_code, 0) << example.output;
  const Outcome program =
      shell(on_ranks(2) + "train --model " + path("model") + " --data " + path("chats.jsonl") + " --export " +
            path("same") + " --run " + path("same.run") +
            " --ep 2 --global-batch 4 --seq-len 64 --steps 6 --sample-chars 0");
  ASSERT_EQ(program.exit_code, 0) << program.output;
  EXPECT_EQ(losses("tuned.run").size(), 6u);
  EXPECT_EQ(losses("tuned.run"), losses("same.run"));
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"})
    EXPECT_TRUE(testing::read_bytes(fs::path(path("tuned")) / file) ==
                testing::read_bytes(fs::path(path("same")) / file))
        << file;
  EXPECT_EQ(read_text_file(fs::path(path("tuned.run")) / "checkpoint-6/trainer_state.json"),
            read_text_file(fs::path(path("same.run")) / "checkpoint-6/trainer_state.json"));
}

TEST_F(Finetune, StopsWithACheckpointAndGoesOn) {
  const std::string metrics = path("tuned.run") + "/metrics.jsonl";
  const Outcome stopped = shell("(until [ -s " + metrics + " ]; do sleep 0.05; done; pkill -TERM -f '^" +
                                std::string(MOELOOM_BINARY_DIR) + "/examples/finetune " + path("model") +
                                "') & " + finetune("tuned", 1'000'000));
  ASSERT_EQ(stopped.exit_code, 1) << stopped.output;
  EXPECT_EQ(testing::count_of(stopped.output, "stopped=SIGTERM"), 1u) << stopped.output;
  const Index done = std::ssize(losses("tuned.run"));
  const Outcome went_on = shell(finetune("tuned", done + 2));
  ASSERT_EQ(went_on.exit_code, 0) << went_on.output;
  EXPECT_EQ(std::ssize(losses("tuned.run")), done + 2);
  EXPECT_TRUE(fs::exists(fs::path(path("tuned")) / "model.safetensors"));
}

}  // namespace
}  // namespace moeloom
