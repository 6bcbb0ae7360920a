// A trained model that is asked in a process that is not the program's.
#include "moeloom/run/asking.hpp"

#include "moeloom/base/errors.hpp"

#include "small_run.hpp"

namespace moeloom {
namespace {

class AskingInAProgram : public testing::SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    Training training(Communicator::self(), options("run"));
    testing::run_to_its_end(training);
    asked_.model = folder_ / "run";
  }

  AskOptions asked_;
};

TEST_F(AskingInAProgram, Answers) {
  Asking model(Communicator::self(), asked_);
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

TEST_F(AskingInAProgram, SaysWhatIsWrongWithTheModelAndWhatItsCallerFound) {
  asked_.model = folder_ / "nowhere";
  Violations found;
  found.add("tokens = -1 must be at least 1");
  try {
    Asking model(Communicator::self(), asked_, {}, found);
    ADD_FAILURE() << "nothing was said";
  } catch (const AgreedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("tokens = -1"), std::string::npos) << text;
    EXPECT_NE(text.find("nowhere"), std::string::npos) << text;
    EXPECT_EQ(error.cause(), Cause::kRequest);
  }
}

TEST_F(AskingInAProgram, ScoresTextsAndFiles) {
  int begun = 0;
  RunHost host;
  host.begin = [&] { ++begun; };
  Asking model(Communicator::self(), asked_, host);
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
  EXPECT_EQ(begun, 3) << "once a question";
  EXPECT_THROW(model.score(""), AgreedError);
  EXPECT_THROW(model.score(std::string(100'000, 'a')), AgreedError) << "more than the model's positions";
  EXPECT_THROW(model.score({{"user", "thread?"}, {"assistant", "drew"}}), AgreedError) << "no template";
}

TEST_F(AskingInAProgram, GoesOnInIdsAndAnswersMany) {
  Asking model(Communicator::self(), asked_);
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
