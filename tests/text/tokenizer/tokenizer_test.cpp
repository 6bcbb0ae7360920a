#include "moeloom/text/tokenizer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "support/expect_error.hpp"
#include "tokenizer/tokenizer_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Ids;
using testing::kModel;

/// A file of some members beside the model.
Tokenizer with(const std::string& members, const std::string& model = kModel) {
  return Tokenizer::parse("{" + members + (members.empty() ? "" : ", ") + "\"model\": " + model + "}",
                          "file");
}

std::string refusal(const std::string& members, const std::string& model = kModel) {
  return testing::message_of<ConfigError>([&] { with(members, model); });
}

struct Refusal {
  std::string members, told;
};

TEST(Tokenizer, RefusesByNameWhatIsNotImplemented) {
  const std::vector<Refusal> cases = {
      {R"("normalizer": {"type": "BertNormalizer"})",
       R"(file.normalizer.type: expected what is implemented here (Sequence, NFC)"},
      {R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Odd"}]})",
       R"(file.normalizer.normalizers[1].type)"},
      {R"("pre_tokenizer": {"type": "UnicodeScripts"})", R"(found "UnicodeScripts")"},
      {R"("post_processor": {"type": "Odd"})", "file.post_processor.type"},
      {R"("decoder": {"type": "CTC"})", R"(found "CTC")"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
       "file.pre_tokenizer.pattern.Regex: not a regular expression"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"})", "behavior"},
      {R"("pre_tokenizer": {"type": "Metaspace"})", "expected a member \"replacement\""},
      {R"("added_tokens": [{"id": -1, "content": "x"}])", "file.added_tokens[0].id: expected an id"},
  };
  for (const Refusal& each : cases)
    EXPECT_NE(refusal(each.members).find(each.told), std::string::npos) << refusal(each.members);
}

TEST(Tokenizer, RefusesModelsThatDoNotFitTogether) {
  const std::vector<Refusal> cases = {
      {R"({"type": "WordPiece", "vocab": {}})", R"(found "WordPiece")"},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})", "merge 0 is about \"b\""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]})", "merge 0 is about \"aa\""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]})", "one space"},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})", "file.model.dropout"},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true, "end_of_word_suffix": "</w>"})",
       "file.model: byte_fallback beside"},
      {R"({"type": "BPE", "vocab": {"a": 4000000000}, "merges": []})", "an id below"},
      {R"({"type": "Unigram", "vocab": [["a"]]})", "[piece, score]"},
      {R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})", "file.model.unk_id"},
      {R"({"vocab": {}})", "file.model: expected a member \"merges\""},
  };
  for (const Refusal& each : cases)
    EXPECT_NE(refusal("", each.members).find(each.told), std::string::npos) << refusal("", each.members);
}

TEST(Tokenizer, SplitsAtEmptyMatchesAsTheReferenceDoes) {
  const auto split_by = [](const std::string& pattern, const std::string& behavior) {
    return with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + pattern +
                R"("}, "behavior": ")" + behavior + "\"}");
  };
  EXPECT_EQ(split_by("x", "Isolated").encode("abcabc", false), (Ids{4, 4}));
  EXPECT_EQ(split_by("x*", "Isolated").encode("abc", false), (Ids{0, 1, 2}));
  EXPECT_EQ(split_by("(?=b)", "Removed").encode("abc", false), (Ids{0, 1, 2}));
  EXPECT_EQ(split_by("c|(?=b)", "Removed").encode("abcabc", false), (Ids{0, 1, 0, 1}));
}

struct Behavior {
  std::string name;
  bool invert;
  Ids ids;
};

TEST(Tokenizer, JoinsMatchesToTheirNeighboursByEachBehavior) {
  // Without a merge the pieces would all give the same ids, so that each is a token.
  const std::string model =
      R"({"type": "BPE", "ignore_merges": true, "merges": [], "vocab": {"-": 0, "a": 1, "--": 2,
      "a-": 3, "-a": 4, "a--": 5, "--a": 6, "a--a": 7}})";
  const std::vector<Behavior> cases = {{"Isolated", false, {1, 0, 0, 1}},
                                       {"Removed", false, {1, 1}},
                                       {"Removed", true, {0, 0}},
                                       {"MergedWithPrevious", false, {3, 0, 1}},
                                       {"MergedWithNext", false, {1, 0, 4}},
                                       {"Contiguous", false, {1, 2, 1}}};
  for (const Behavior& each : cases) {
    SCOPED_TRACE(each.name);
    const std::string split =
        R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + each.name +
        R"(", "invert": )" + (each.invert ? "true" : "false") + "}";
    EXPECT_EQ(with(split, model).encode("a--a", false), each.ids);
  }
}

TEST(Tokenizer, CountsSuperscriptsAsNoPartOfAWord) {
  const std::string model =
      R"({"type": "BPE", "ignore_merges": true, "merges": [], "vocab": {"a": 0, "\u00b2": 1,
      "a\u00b2": 2, "\u00aa": 3, "a\u00aa": 4}})";
  const Tokenizer tokenizer = with(R"("pre_tokenizer": {"type": "Whitespace"})", model);
  EXPECT_EQ(tokenizer.encode("a\u00b2", false), (Ids{0, 1}));
  EXPECT_EQ(tokenizer.encode("a\u00aa", false), (Ids{4}));
}

TEST(Tokenizer, FallsBackToTheBytesOfByteLevelLetters) {
  const std::string model = R"({"type": "BPE", "byte_fallback": true, "merges": [],
      "vocab": {"<0x20>": 0, "<0xC4>": 1, "<0xA0>": 2, "a": 3}})";
  const Tokenizer tokenizer =
      with(R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})", model);
  EXPECT_EQ(tokenizer.encode(" a", false), (Ids{1, 2, 3}));  // the letter of a space is U+0120
}

TEST(Tokenizer, OffsetsOfIllFormedTextsAreThoseOfTheBytesGiven) {
  const Tokenizer tokenizer = with(R"("added_tokens": [{"id": 7, "content": "�", "normalized": false}])");
  const Encoding encoding = tokenizer.encode_with_offsets(
      "a\xE4\xBD"
      "b\xFF",
      false);
  EXPECT_EQ(encoding.ids, (Ids{0, 7, 1, 7}));
  EXPECT_EQ(encoding.offsets, (std::vector<ByteRange>{{0, 1}, {1, 3}, {3, 4}, {4, 5}}));
}

/// What somebody's last call of the library left behind is no part of the tokenizer.
TEST(Tokenizer, NeitherCutsNorPads) {
  const Tokenizer tokenizer =
      with(R"("truncation": {"max_length": 1}, "padding": {"strategy": {"Fixed": 9}})");
  EXPECT_EQ(tokenizer.encode("abcab", true), (Ids{4, 3}));
}

/// As the reference engine: from the model's tokens on, in the file's order.
TEST(Tokenizer, NumbersAddedTokensOnWhateverTheFileSays) {
  const Tokenizer tokenizer = with(
      R"("added_tokens": [{"id": 7, "content": "<s>"}, {"id": 20, "content": "<x>"}, {"id": 3, "content": "ab"},
         {"id": 21, "content": "<y>"}])");
  EXPECT_EQ(tokenizer.encode("<s>a<x>b<y>ab", false), (Ids{7, 0, 8, 1, 9, 3}));
}

/// The reference drops empty parts of a text, also those that are tokens.
TEST(Tokenizer, GivesNoTokenThatAnotherSwallowed) {
  const Tokenizer tokenizer = with(
      R"("added_tokens": [{"id": 7, "content": " ", "lstrip": true, "rstrip": true, "normalized": false}])");
  EXPECT_EQ(tokenizer.encode("a   b", false), (Ids{0, 7, 1}));
}

TEST(Tokenizer, PutsSpacesBetweenStringsWhereThereIsNoDecoderAlone) {
  EXPECT_EQ(with("").decode(Ids{3, 2}, false), "ab c");
  EXPECT_EQ(with(R"("decoder": {"type": "Sequence", "decoders": []})").decode(Ids{3, 2}, false), "abc");
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = with(R"("added_tokens": [{"id": 7, "content": "<s>", "special": true}])");
  EXPECT_EQ(tokenizer.vocabulary_size(), 8U);
  EXPECT_EQ(tokenizer.id_of("<s>"), 7U);
  EXPECT_EQ(tokenizer.id_of("abc"), 4U);
  EXPECT_EQ(tokenizer.id_of("xyz"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(4), "abc");
  EXPECT_EQ(tokenizer.token_of(10), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(7));
  EXPECT_FALSE(tokenizer.is_special(4));
}

TEST(Tokenizer, GivesUpOnRunawayPatternsAndTextsThatOnlyGrow) {
  const Tokenizer runaway = with(
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$x"}, "behavior": "Isolated"})");
  EXPECT_NE(testing::message_of<ConfigError>([&] {
              runaway.encode(std::string(100, 'a'), false);
            }).find("gives up"),
            std::string::npos);
  std::string doublings;
  for (int i = 0; i < 40; ++i)
    doublings += std::string(i == 0 ? "" : ", ") +
                 R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const Tokenizer growing = with(R"("normalizer": {"type": "Sequence", "normalizers": [)" + doublings + "]}");
  EXPECT_NE(testing::message_of<ConfigError>([&] { growing.encode("a", false); }).find("make more than"),
            std::string::npos);
}

TEST(Tokenizer, MergesAWordOfAnyLengthInTimeThatGrowsWithIt) {
  const Tokenizer tokenizer = with("");
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "abc";
  const Ids ids = tokenizer.encode(text, false);
  EXPECT_EQ(ids, Ids(300'000, 4));
}

TEST(Tokenizer, EncodesManyTextsByManyThreadsAsByOne) {
  const std::string name = testing::tokenizer_names().front();
  const Tokenizer& tokenizer = testing::tokenizer_named(name);
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i)
    texts.push_back("text " + std::to_string(i % 37) + std::string(i % 5, ' ') + "é");
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const int before = threads();
  set_threads(4);
  const auto all = tokenizer.encode_all(views, true);
  set_threads(before);
  ASSERT_EQ(all.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(all[i], tokenizer.encode(texts[i], true));
  EXPECT_TRUE(tokenizer.encode_all({}, true).empty());
}

}  // namespace
}  // namespace moeloom
