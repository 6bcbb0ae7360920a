// Fine-tuning as a person does it: a tokenizer and a template, a text, conversations, and what the model then
// says.
#include "io/text_file.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <thread>
#include <tuple>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::alone;
using testing::count_of;
using testing::kProgram;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class TextCommands : public testing::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write_words_and_chats();
  }

  std::string text() const { return "--data " + path("corpus.txt") + " "; }

  /// Of a new model with the tokenizer.
  std::string train_words(int ranks, const std::string& flags) const {
    return on_ranks(ranks) +
           "train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
           " --seq-len 32 --global-batch 4 --eval-sequences 4 --sample-chars 20 --progress off --overwrite "
           "true"
           " --tokenizer " +
           path("words") + " --run " + path("run") + " " + flags;
  }
};

TEST_F(TextCommands, ATextIsTokenizedOnceAndTheModelKeepsItsWords) {
  const Outcome run = shell(train_words(1, text() + "--steps 2 --export " + path("out")));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count_of(run.output, "tokenized=" + path("run") + "/data/"), 1u) << run.output;
  EXPECT_EQ(count_of(run.output, "nats per token"), 1u) << run.output;
  for (const char* folder : {"run/checkpoint-2", "out"})
    for (const char* file : {"tokenizer.json", "chat_template.jinja"})
      EXPECT_EQ(read_text_file(fs::path(path(folder)) / file), read_text_file(fs::path(path("words")) / file))
          << folder;
  const Outcome more = shell(alone() + "train --resume " + path("run") + " --steps 4 --tokenizer /nowhere");
  ASSERT_EQ(more.exit_code, 0) << more.output;
  EXPECT_EQ(count_of(more.output, "found_tokenized="), 1u) << more.output;
}

/// Other ranks wait meanwhile, so what a rank may use is used for each.
TEST_F(TextCommands, TokenizesOnTheThreadsThatRanksMayUse) {
  for (const int ranks : {1, 2}) {
    const Outcome run =
        shell(train_words(ranks, text() + "--steps 1 --threads 1 --cache " + path(std::to_string(ranks))));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const int expected = std::min(ranks, static_cast<int>(std::thread::hardware_concurrency()));
    EXPECT_EQ(count_of(run.output, " threads=" + std::to_string(expected) + " seconds="), 1u) << run.output;
  }
}

TEST_F(TextCommands, AResumeNamesWhatChangesTheData) {
  const std::string chats = "--data " + path("chats.jsonl") + " ";
  ASSERT_EQ(shell(train_words(1, chats + "--steps 2")).exit_code, 0);
  const auto resumed = [&](const std::string& flags) {
    const Outcome run = shell(alone() + "train --resume " + path("run") + " " + flags);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.output;
  };
  const std::string same = resumed("--steps 3 --schedule-steps 2");
  EXPECT_EQ(count_of(same, "changed="), 0u) << same;
  const std::string learned = resumed("--steps 4 --schedule-steps 2 --learn all");
  EXPECT_EQ(count_of(learned, "changed=learn then=assistant now=all keep=\"--learn assistant\""), 1u)
      << learned;
  EXPECT_EQ(count_of(learned, "changed=data"), 0u) << learned;
  std::ofstream(path("chats.jsonl"), std::ios::app)
      << R"({"messages":[{"role":"user","content":"a?"},{"role":"assistant","content":"b"}]})"
      << "\n";
  const std::string longer = resumed("--steps 5 --schedule-steps 2");
  EXPECT_EQ(count_of(longer, "changed=data file=chats.jsonl by=contents"), 1u) << longer;
  const std::string weighed =
      resumed("--steps 6 --schedule-steps 2 " + chats + "--data " + path("corpus.txt"));
  EXPECT_EQ(count_of(weighed, "changed=\"weights of the data\" then=none now=\"none, none\""), 1u) << weighed;
  EXPECT_EQ(count_of(weighed, "changed=data then=chats.jsonl now=\"chats.jsonl, corpus.txt\""), 1u)
      << weighed;
}

TEST_F(TextCommands, AMemoryCeilingCountsTheData) {
  const Outcome run = shell(train_words(1, "--data " + path("chats.jsonl") + " --steps 2 --memory 1MiB"));
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(run.output.find("\n[error]   data  "), std::string::npos) << run.output;
}

TEST_F(TextCommands, ConversationsAndTextAreMixedAndEveryMeshLearnsTheSame) {
  const std::string data = " --data " + path("chats.jsonl") + ":0.7 --data " + path("corpus.txt") +
                           ":0.3 --epochs 0.5 --aux-loss-coef 0 --seed 3 --run ";
  for (const auto& [run, ranks, flags] :
       {std::tuple{"one", 2, ""}, {"two", 2, " --ep 2"}, {"split", 1, " --accumulate 2"}}) {
    const Outcome trained = shell(train_words(ranks, data + path(run) + flags));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    EXPECT_EQ(count_of(trained.output, "source=chats.jsonl epochs="), 1u) << trained.output;
    EXPECT_EQ(count_of(trained.output, "source=corpus.txt epochs="), 1u) << trained.output;
    EXPECT_EQ(count_of(trained.output, "60 examples"), 1u) << trained.output;
  }
  EXPECT_GT(losses("one").size(), 1u);
  ASSERT_EQ(losses("one").size(), losses("two").size());
  EXPECT_EQ(losses("one"), losses("two")) << "bit for bit";
  ASSERT_EQ(losses("one").size(), losses("split").size());
  for (std::size_t step = 0; step < losses("one").size(); ++step)
    EXPECT_NEAR(losses("split")[step], losses("one")[step], 1e-5);
}

TEST_F(TextCommands, AModelIsAskedThroughItsTokenizerAndTemplate) {
  ASSERT_EQ(shell(train_words(1, "--steps 1 --data " + path("chats.jsonl"))).exit_code, 0);
  const std::string chat = "chat --model " + path("run") + " --temperature 0 --tokens 6";
  const Outcome answer = shell(alone() + chat + " --message 'thread 3?'");
  EXPECT_EQ(answer.exit_code, 0) << answer.output;
  EXPECT_EQ(shell(on_ranks(2) + chat + " --ep 2 --message 'thread 3?'").output, answer.output);
  const Outcome turns = shell("printf 'thread 3?\\nthread 4?\\n' | " + alone() + chat);
  EXPECT_TRUE(turns.output.starts_with(answer.output)) << turns.output;
  EXPECT_GE(count_of(turns.output, "\n"), 2u);
  std::ofstream(path("prompts")) << "And\nthe weaver\n";
  const std::string generate = "generate --model " + path("run") + " --tokens 5 --prompts " + path("prompts");
  const Outcome texts = shell(alone() + generate);
  EXPECT_EQ(count_of(texts.output, "\"prompt\":\"the weaver\""), 1u) << texts.output;
  EXPECT_EQ(shell(on_ranks(2) + generate).output, texts.output) << "each rank has a prompt of its own";
}

TEST_F(TextCommands, EvaluationIsBySourceAndByExample) {
  ASSERT_EQ(shell(train_words(1, text() + "--steps 1")).exit_code, 0);
  const std::string words = "eval --model " + path("run") + " --data " + path("chats.jsonl") + " --data " +
                            path("corpus.txt") + " --seq-len 32 --logprobs ";
  const Outcome one = shell(alone() + words + path("one.jsonl") + " 2>/dev/null");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  for (const char* row : {"\nchats.jsonl ", "\ncorpus.txt ", "\nall "})
    EXPECT_EQ(count_of(one.output, row), 1u) << one.output;
  const Outcome threads = shell(alone() + words + path("threads.jsonl") + " --threads 1 --cache " +
                                path("eval-cache") + " 2>&1 >/dev/null");
  EXPECT_EQ(count_of(threads.output, " threads=1 seconds="), 2u) << threads.output;
  const Outcome two = shell(on_ranks(2) + words + path("two.jsonl") + " --ep 2 2>/dev/null");
  EXPECT_EQ(two.output, one.output);
  const std::string lines = read_text_file(path("one.jsonl"));
  EXPECT_TRUE(read_text_file(path("two.jsonl")) == lines) << "bit for bit";
  EXPECT_EQ(count_of(lines, "\"source\":\"chats.jsonl\""), 60u);
}

TEST_F(TextCommands, ARunIsResumedAndSavesAfterItsOwnBeginningIsGone) {
  const std::string data = "--data " + path("chats.jsonl") + " --save-every 1 --keep 1 ";
  ASSERT_EQ(shell(train_words(1, data + "--epochs 0.2")).exit_code, 0);
  const auto done = static_cast<Index>(losses("run").size());
  ASSERT_GT(done, 1);
  EXPECT_NE(shell(alone() + "train --epochs 0.1 --resume " + path("run")).exit_code, 0)
      << "fewer steps than it has";
  EXPECT_NE(shell(train_words(1, data + "--epochs 1 --steps 3")).exit_code, 0);
  const std::string steps = std::to_string(done + 4);
  const Outcome more =
      shell(alone() + "train --steps " + steps + " --export " + path("out") + " --resume " + path("run"));
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_EQ(losses("run").size(), at(done + 4));
  EXPECT_TRUE(fs::exists(path("run") + "/checkpoint-" + steps + "/tokenizer.json"));
  EXPECT_TRUE(fs::exists(path("out") + "/chat_template.jinja"));
}

TEST_F(TextCommands, InspectShowsWhatIsLearned) {
  ASSERT_EQ(shell(train_words(1, text() + "--steps 1")).exit_code, 0);
  const Outcome shown =
      shell(alone() + "inspect --examples 1 --model " + path("run") + " --data " + path("chats.jsonl"));
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_EQ(count_of(shown.output, "<user>thread 0?\n<assistant>\u00ABdrew 0\n\u00BB"), 1u) << shown.output;
  EXPECT_EQ(count_of(shown.output, "examples               60\n"), 1u) << shown.output;
}

TEST_F(TextCommands, WhatADiskDoesNotTakeIsAnError) {
  ASSERT_EQ(shell(train_words(1, text() + "--steps 1")).exit_code, 0);
  std::ofstream(path("ids")) << "1 2 3\n";
  const std::string model = " --model " + path("run") + " ", tokenizer = " --model " + path("words") + " ";
  for (const std::string& words :
       {"tokenize --ids" + tokenizer + "--in " + path("corpus.txt"),
        "tokenize --decode" + tokenizer + "--in " + path("ids"),
        "inspect --data " + path("chats.jsonl") + model, "inspect" + model, "generate --tokens 2" + model,
        "chat --tokens 2 --message a" + model, "eval --seq-len 32 --data " + path("corpus.txt") + model}) {
    const Outcome full = shell(alone() + words + " > /dev/full");
    EXPECT_EQ(full.exit_code, kDiskExitCode) << words << "\n" << full.output;
    EXPECT_EQ(count_of(full.output, "cannot write the standard output"), 1u) << full.output;
  }
}

TEST_F(TextCommands, RawIdsThatTokenizeWroteAreNotTakenForOthers) {
  const Outcome written = shell(alone() + "tokenize --format raw --model " + path("words") + " --in " +
                                path("corpus.txt") + " --out " + path("raw.bin"));
  ASSERT_EQ(written.exit_code, 0) << written.output;
  const std::string raw = "--steps 1 --data " + path("raw.bin");
  const Outcome refused = shell(train_words(1, raw));
  EXPECT_EQ(refused.exit_code, kFailedExitCode);
  EXPECT_EQ(count_of(refused.output, "choose --data-format u32"), 1u) << refused.output;
  const Outcome trained = shell(train_words(1, raw + " --data-format u32"));
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  const std::string eval = "eval --seq-len 32 --model " + path("run") + " --data ";
  EXPECT_EQ(count_of(shell(alone() + eval + path("raw.bin")).output, "choose --data-format u32"), 1u);
  std::filesystem::rename(path("raw.bin"), path("raw.u32"));
  const Outcome scored = shell(alone() + eval + path("raw.u32"));
  EXPECT_EQ(scored.exit_code, 0) << scored.output;
  EXPECT_EQ(count_of(scored.output, "\nraw.u32 "), 1u) << scored.output;
}

TEST_F(TextCommands, RanksThatWereToldDifferentDataEndWithAWord) {
  const std::string words =
      kProgram + " train --experts 4 --tokenizer " + path("words") + " --run " + path("run");
  const Outcome refused = shell(testing::on_two_ranks(words + " --data " + path("chats.jsonl"),
                                                      words + " --data " + path("corpus.txt")));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_EQ(count_of(refused.output, "differ between rank 0 and rank 1"), 1u) << refused.output;
}

TEST_F(TextCommands, BadDataAreNamedBeforeTheFirstStep) {
  std::ofstream(path("bad.jsonl")) << R"({"text":"fine and good, as long as it needs to be for a row"})"
                                   << "\nnot json\n{\"messages\":[]}\n";
  struct Case {
    std::string flags, said;
  };
  const std::vector<Case> cases = {
      {"--data " + path("bad.jsonl"), "bad.jsonl:2: not JSON"},
      {"--data " + path("bad.jsonl") + " --skip-bad 1", "this is the 2th line that cannot be used"},
      {"--data " + path("nowhere.jsonl"), "nowhere.jsonl"},
      {"--data " + path("chats.jsonl") + ":-1", "must be positive"},
      {"--vocab 300 --data " + path("chats.jsonl"), "the embedding has vocab_size = 300 rows"}};
  for (const Case& c : cases) {
    const Outcome refused = shell(train_words(2, c.flags));
    EXPECT_NE(refused.exit_code, 0) << c.flags;
    EXPECT_EQ(count_of(refused.output, c.said), 1u) << refused.output;
    EXPECT_EQ(count_of(refused.output, "step=0"), 0u) << refused.output;
  }
  const Outcome bytes =
      shell(alone() + "train --experts 4 --run " + path("bytes") + " --data " + path("chats.jsonl"));
  EXPECT_EQ(count_of(bytes.output, "a conversation needs a tokenizer"), 1u) << bytes.output;
  const Outcome skipped = shell(
      train_words(1, "--steps 1 --heldout 0 --global-batch 1 --skip-bad 2 --data " + path("bad.jsonl")));
  EXPECT_EQ(skipped.exit_code, 0) << skipped.output;
  EXPECT_EQ(count_of(skipped.output, "skipped_lines=2"), 1u) << skipped.output;
}

}  // namespace
}  // namespace moeloom
