#include "open/data_marks.hpp"

#include <fstream>
#include <functional>

#include "open/run_settings.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Texts = std::vector<std::string>;

DataOptions with(const std::function<void(DataOptions&)>& change) {
  DataOptions options;
  change(options);
  return options;
}

/// A file of examples as prepare_examples() makes it.
struct Made {
  std::string contents = "c";
  std::string tokenizer = "t";
  std::string chat_template = "p";
  std::string learns = "0";
  std::uint32_t first_id = 1;
  std::string file = "/a/chats.jsonl";
};

class DataMarks : public ::testing::Test {
 protected:
  Document marks(const std::vector<Made>& files, DataOptions options = {}) {
    RunData data;
    for (const Made& made : files) {
      const auto path = folder_ / ("examples-" + std::to_string(files_++));
      ExampleFileWriter writer(path, "moeloom examples: 2\nfile: " + made.file +
                                         "\ncontents: " + made.contents + "\nlearns: " + made.learns +
                                         "\ntokenizer: " + made.tokenizer +
                                         "\ntemplate: " + made.chat_template + "\nskips: 0");
      writer.add(Example{{made.first_id, 2, 3}, {1, 1, 1}});
      writer.finish();
      data.examples.push_back(std::make_unique<ExampleFile>(path));
    }
    if (options.sources.empty())
      for (const Made& made : files) options.sources.push_back({made.file});
    Document settings;
    add_data_marks(options, data, settings);
    return settings;
  }
  static Texts texts(const Document& then, const Document& now) {
    Texts all;
    for (const Event& event : data_changes(then, now)) all.push_back(event.text());
    return all;
  }

  testing::TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(DataMarks, OfTheSameTokensDoNotDiffer) {
  const Document then = marks({{}});
  EXPECT_EQ(texts(then, marks({{}})), Texts{});
  EXPECT_EQ(texts(then, marks({{.contents = "touched", .file = "/b/moved.jsonl"}})), Texts{})
      << "moved and touched, but the tokens are the same";
  EXPECT_EQ(texts(Document(), marks({{}})), Texts{}) << "an older program recorded none";
}

TEST_F(DataMarks, NameWhatMadeTheTokensOthers) {
  const Document then = marks({{}});
  EXPECT_EQ(texts(then, marks({{.contents = "d", .first_id = 7}})),
            Texts{"changed=data file=chats.jsonl by=contents"});
  EXPECT_EQ(texts(then, marks({{.tokenizer = "u", .chat_template = "q", .first_id = 7}})),
            Texts{"changed=data file=chats.jsonl by=\"template, tokenizer\""});
  EXPECT_EQ(texts(then, marks({{}, {.file = "/a/more.jsonl"}})),
            (Texts{"changed=\"weights of the data\" then=none now=\"none, none\"",
                   "changed=data then=chats.jsonl now=\"chats.jsonl, more.jsonl\""}));
}

TEST_F(DataMarks, NameOptionsThatChooseOtherTokens) {
  const Document then = marks({{}});
  EXPECT_EQ(texts(then, marks({{.learns = "1", .first_id = 7}}, with([](DataOptions& o) {
                                o.rows.learn = LearnRule::kLast;
                                o.too_long = TooLong::kDrop;
                              }))),
            (Texts{"changed=learn then=assistant now=last keep=\"`learn` assistant\"",
                   "changed=too-long then=cut now=drop keep=\"`too-long` cut\""}));
  EXPECT_EQ(texts(then, marks({{}}, with([](DataOptions& o) { o.heldout = 0.1; }))),
            Texts{"changed=heldout then=0.05 now=0.1 keep=\"`heldout` 0.05\""});
  const auto weighted = [&](double second) {
    return marks({{}, {}}, with([&](DataOptions& o) {
                   o.sources = {{"a.jsonl", 0.7}, {"b.jsonl", second}};
                 }));
  };
  EXPECT_EQ(texts(weighted(0.3), weighted(0.2)),
            Texts{"changed=\"weights of the data\" then=\"0.7, 0.3\" now=\"0.7, 0.2\""});
}

TEST_F(DataMarks, ATextOfIdsIsKnownByItsEnds) {
  const auto of = [&](const std::string& text) {
    std::ofstream(folder_ / "text.txt") << text;
    RunData data;
    data.tokens = std::make_unique<TokenSource>(folder_ / "text.txt", TokenFormat::kText);
    Document settings;
    add_data_marks(with([&](DataOptions& o) { o.sources = {{folder_ / "text.txt"}}; }), data, settings);
    return settings;
  };
  EXPECT_EQ(texts(of("one text"), of("one text")), Texts{});
  EXPECT_EQ(texts(of("one text"), of("two text")), Texts{"changed=data file=text.txt by=contents"});
}

/// They travel with a checkpoint's state, and are told at a resume with all that changed.
TEST_F(DataMarks, AreComparedWithTheSettingsOfARun) {
  TrainerState then, now;
  then.settings = marks({{}});
  now.settings =
      marks({{.learns = "1", .first_id = 7}}, with([](DataOptions& o) { o.rows.learn = LearnRule::kLast; }));
  const std::vector<Event> changes = changes_between(TrainerState::from(then.to_document()), now);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes.front().text(), "changed=learn then=assistant now=last keep=\"`learn` assistant\"");
}

}  // namespace
}  // namespace moeloom
