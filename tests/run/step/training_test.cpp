// A run in a process that is not the program's: no MPI, no terminal, no signal of its own.
#include "moeloom/run/training.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/run/asking.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>

#include "record/metrics.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

class TrainingInAProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 500; ++i)
      text << "And the weaver drew thread " << i * i % 89 << " through the loom.\n";
  }

  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    ModelConfig& shape = options.model.shape;
    shape.num_hidden_layers = 2;
    shape.hidden_size = 16;
    shape.moe_intermediate_size = 8;
    shape.num_attention_heads = 2;
    shape.num_key_value_heads = 1;
    shape.head_dim = 8;
    shape.num_experts = 4;
    shape.num_experts_per_tok = 2;
    options.data.sources = {{folder_ / "corpus.txt"}};
    options.batch = {.sequences = 4, .length = 16};
    options.run.folder = folder_ / run;
    options.run.steps = 3;
    options.run.eval_sequences = 4;
    options.run.sample_chars = 0;
    return options;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const StepMetrics& step : read_metrics(folder_ / run / "metrics.jsonl")) all.push_back(step.loss);
    return all;
  }

  const testing::TemporaryFolder folder_;
};

RunEnd run_to_its_end(Training& training) {
  while (training.step()) continue;
  return training.finish();
}

TEST_F(TrainingInAProgram, TrainsSavesAndTellsItsHostAlone) {
  const int threads_before = threads();
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  std::vector<std::string> told;
  RunHost host;
  host.say = [&](LogLevel, const Event& event) { told.push_back(event.text()); };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    Training training(Communicator::self(), options("run"), host);
    EXPECT_EQ(training.next_step(), 0);
    EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
    EXPECT_EQ(training.next_step(), 3);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(losses("run").size(), 3u);
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-3/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "run/report.html"));
  EXPECT_TRUE(std::ranges::any_of(told, [](const std::string& line) { return line.starts_with("step=2 "); }));
  EXPECT_EQ(threads(), threads_before);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(TrainingInAProgram, GoesOnFromItsCheckpointWithTheSameLosses) {
  TrainOptions whole = options("whole");
  whole.run.steps = 5;
  Training unbroken(Communicator::self(), whole);
  run_to_its_end(unbroken);
  int asked = 0;
  RunHost host;
  host.stop = [&] { return ++asked == 2 ? SIGTERM : 0; };
  TrainOptions broken = options("broken");
  broken.run.steps = 5;
  {
    Training training(Communicator::self(), broken, host);
    EXPECT_EQ(run_to_its_end(training), RunEnd::kStopped);
    EXPECT_EQ(training.next_step(), 2);
  }
  broken.run.resume = broken.run.folder;
  Training training(Communicator::self(), broken);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_EQ(losses("broken"), losses("whole"));
}

TEST_F(TrainingInAProgram, GoesOnByItsFolderAlone) {
  TrainOptions asked = options("whole");
  asked.optimizer.learning_rate = 3e-3;
  asked.batch.length = 24;
  asked.run.seed = 5;
  asked.run.export_folder = folder_ / "out";
  Training unbroken(Communicator::self(), asked);
  run_to_its_end(unbroken);
  asked.run.folder = folder_ / "broken";
  asked.run.export_folder = folder_ / "later";
  {
    Training training(Communicator::self(), asked);
    training.step();
    training.step();
    training.finish();
  }
  const TrainOptions on = options_of_run(folder_ / "broken");
  EXPECT_EQ(on.run.folder, folder_ / "broken");
  EXPECT_EQ(on.run.resume, folder_ / "broken");
  EXPECT_EQ(on.run.steps, 3);
  EXPECT_EQ(options_of_run(folder_ / "broken/checkpoint-2").run.folder, folder_ / "broken");
  Training training(Communicator::self(), on);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_EQ(losses("broken"), losses("whole"));
  EXPECT_TRUE(fs::exists(folder_ / "later/model.safetensors")) << "which the run still owed";
  EXPECT_TRUE(options_of_run(folder_ / "broken").run.export_folder.empty()) << "it was made";
  EXPECT_THROW(options_of_run(folder_ / "nowhere"), ConfigError);
}

TEST_F(TrainingInAProgram, WhatEndsBeforeItsLastStepIsStoppedThere) {
  {
    Training training(Communicator::self(), options("run"));
    training.step();
    training.save();
    training.save();  // once more is nothing
    training.step();
    EXPECT_TRUE(training.evaluate().has_value());
    EXPECT_EQ(training.finish(), RunEnd::kStopped);
  }
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-1"));
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-2"));
  EXPECT_FALSE(fs::exists(folder_ / "run/checkpoint-3"));
  EXPECT_FALSE(fs::exists(folder_ / "run/report.html")) << "it has not ended";
  TrainOptions on = options("run");
  on.run.resume = on.run.folder;
  Training training(Communicator::self(), on);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
}

TEST_F(TrainingInAProgram, TwoRunsLiveSideBySide) {
  Training alone(Communicator::self(), options("alone"));
  run_to_its_end(alone);
  TrainOptions other = options("other");
  other.run.seed = 7;
  Training one(Communicator::self(), options("one")), two(Communicator::self(), other);
  for (bool more = true; more;) {
    more = one.step();
    more = two.step() || more;
  }
  EXPECT_EQ(one.finish(), RunEnd::kDone);
  EXPECT_EQ(two.finish(), RunEnd::kDone);
  EXPECT_EQ(losses("one"), losses("alone"));
  EXPECT_NE(losses("two"), losses("one"));
}

TEST_F(TrainingInAProgram, SaysAllThatIsWrongByTheNamesOfOptions) {
  TrainOptions wrong = options("run");
  wrong.data.sources = {{folder_ / "not-there.txt"}};
  wrong.mesh.ep = 3;
  try {
    Training training(Communicator::self(), wrong);
    ADD_FAILURE() << "nothing was said";
  } catch (const AgreedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("not-there.txt"), std::string::npos) << text;
    EXPECT_NE(text.find("ep = 3"), std::string::npos) << text;
    EXPECT_EQ(text.find("--"), std::string::npos) << "flags are the program's: " << text;
  }
}

TEST_F(TrainingInAProgram, ATrainedModelAnswers) {
  {
    Training training(Communicator::self(), options("run"));
    run_to_its_end(training);
  }
  AskOptions asked;
  asked.model = folder_ / "run";
  Asking model(Communicator::self(), asked);
  AnswerSettings settings{.tokens = 12, .sampling = {.temperature = 0}};
  std::string shown;
  const std::string answer =
      model.generate("And the ", settings, [&](const std::string& part) { shown += part; });
  EXPECT_FALSE(answer.empty());
  EXPECT_EQ(shown, answer);
  EXPECT_EQ(model.generate("And the ", settings), answer);
  settings.stop = {answer.substr(answer.size() / 2)};
  EXPECT_EQ(model.generate("And the ", settings), answer.substr(0, answer.find(settings.stop.front())));
  EXPECT_THROW(model.chat({{"user", "thread?"}}), AgreedError) << "bytes have no template";
  EXPECT_THROW(model.generate("", settings), AgreedError);
  settings.sampling.min_p = 2;
  EXPECT_THROW(model.generate("And the ", settings), AgreedError);
  EXPECT_THROW(Asking(Communicator::self(), {}), AgreedError) << "a model is needed";
}

TEST_F(TrainingInAProgram, ATrainedModelScoresTextsAndFiles) {
  {
    Training training(Communicator::self(), options("run"));
    run_to_its_end(training);
  }
  AskOptions asked;
  asked.model = folder_ / "run";
  int begun = 0;
  RunHost host;
  host.begin = [&] { ++begun; };
  Asking model(Communicator::self(), asked, host);
  EXPECT_TRUE(model.folder().string().ends_with("checkpoint-3")) << model.folder();
  EXPECT_FALSE(model.chats());
  const std::string first = "And the weaver", second = "drew thread 1 through the loom";
  const Score one = model.score(first), two = model.score(second);
  EXPECT_EQ(one.tokens, std::ssize(first) - 1) << "bytes, of which the first is not predicted";
  EXPECT_EQ(one.bytes, one.tokens);
  EXPECT_EQ(one.nats, one.text_nats);
  EXPECT_GT(one.nats_per_token(), 0);
  std::ofstream(folder_ / "texts.jsonl") << R"({"text":")" << first << "\"}\n"
                                         << R"({"text":")" << second << "\"}\n";
  ScoreOptions files{.sources = {{folder_ / "texts.jsonl"}}, .cache = folder_ / "cache", .by_example = true};
  int sources = 0;
  model.score_files(files, [&](const DataSource& source, const Score& all, const auto& examples) {
    ++sources;
    EXPECT_EQ(source.file, folder_ / "texts.jsonl");
    EXPECT_EQ(all.tokens, one.tokens + two.tokens);
    EXPECT_NEAR(all.nats, one.nats + two.nats, 1e-9 * all.nats);
    ASSERT_EQ(examples.size(), 2u);
    for (const auto& [example, score] : {std::pair(0u, one), std::pair(1u, two)}) {
      EXPECT_EQ(examples[example].example, Index{example});
      double nats = 0;
      for (const double logprob : examples[example].logprobs) nats -= logprob;
      EXPECT_NEAR(nats, score.nats, 1e-9 * nats);
    }
  });
  EXPECT_EQ(sources, 1);
  EXPECT_EQ(begun, 1) << "of the files; a text's score is told at once";
  EXPECT_THROW(model.score(""), AgreedError);
  EXPECT_THROW(model.score(std::string(100'000, 'a')), AgreedError) << "more than the model's positions";
  EXPECT_THROW(model.score({{"user", "thread?"}, {"assistant", "drew"}}), AgreedError) << "no template";
}

TEST_F(TrainingInAProgram, ATrainedModelIsAskedInIdsAndManyAtATime) {
  {
    Training training(Communicator::self(), options("run"));
    run_to_its_end(training);
  }
  AskOptions asked;
  asked.model = folder_ / "run";
  Asking model(Communicator::self(), asked);
  const AnswerSettings settings{.tokens = 6, .sampling = {.temperature = 0}};
  const std::string text = model.generate("And", settings);
  std::vector<Index> shown;
  const std::vector<Index> ids =
      model.generate_ids({'A', 'n', 'd'}, settings, [&](Index id) { shown.push_back(id); });
  EXPECT_EQ(shown, ids);
  EXPECT_EQ(std::string(ids.begin(), ids.end()), text);
  std::vector<std::string> told;
  model.generate_all({"And", "the"}, settings, [&](const Answer& answer) {
    told.push_back(answer.prompt + answer.text);
    EXPECT_EQ(answer.tokens, 6);
  });
  EXPECT_EQ(told, (std::vector{"And" + text, "the" + model.generate("the", settings)}));
  EXPECT_THROW(model.generate_ids({256}, settings), AgreedError);
  EXPECT_THROW(model.generate("And", {.tokens = 100'000}), AgreedError) << "more than the model's positions";
}

}  // namespace
}  // namespace moeloom
