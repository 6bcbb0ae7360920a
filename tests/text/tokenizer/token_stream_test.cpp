#include "text/token_stream.hpp"

#include <chrono>

#include "tokenizer/tokenizer_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::member;

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& ids, bool skip) {
  TokenStream stream(tokenizer, skip);
  std::string text;
  for (const std::uint32_t id : ids) {
    const std::string fresh = stream.next(id);
    EXPECT_EQ(valid_utf8(fresh), fresh);
    text += fresh;
  }
  return text + stream.finish();
}

TEST(TokenStream, GivesWhatDecodeGivesForEveryTextOfTheFiles) {
  for (const std::string& name : testing::tokenizer_names()) {
    SCOPED_TRACE(name);
    const Tokenizer& tokenizer = testing::tokenizer_named(name);
    for (const JsonValue& line : testing::json_lines(testing::tokenizer_root() / name / "cases.jsonl")) {
      const std::vector<std::uint32_t> ids = testing::ids_in(member(line, "ids"));
      constexpr std::size_t kShort = 2000;  // what it holds back has no more to do with a long text
      if (ids.size() > kShort) continue;
      for (const bool skip : {false, true})
        EXPECT_EQ(streamed(tokenizer, ids, skip), tokenizer.decode(ids, skip));
    }
  }
}

constexpr const char* kBytesOfOneCharacter = R"({"model": {"type": "BPE", "merges": [], "byte_fallback": true,
  "vocab": {"a": 0, "<0xE4>": 1, "<0xBD>": 2, "<0xA0>": 3}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}})";

TEST(TokenStream, HoldsACharacterBackUntilItIsWhole) {
  TokenStream stream(Tokenizer::parse(kBytesOfOneCharacter, "test"), false);
  EXPECT_EQ(stream.next(0), "a");
  EXPECT_EQ(stream.next(1), "");
  EXPECT_EQ(stream.next(2), "");
  EXPECT_EQ(stream.next(3), "\u4F60");
  EXPECT_EQ(stream.next(0), "a");
  EXPECT_EQ(stream.next(1), "");
  EXPECT_EQ(stream.next(0), "\uFFFDa");
  EXPECT_EQ(stream.next(1), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TokenStream, GivesSomethingWhereNoCharacterEverEnds) {
  TokenStream stream(Tokenizer::parse(kBytesOfOneCharacter, "test"), false);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += stream.next(1);
  EXPECT_GT(count_code_points(text), 900U);
  text += stream.finish();
  EXPECT_EQ(count_code_points(text), 1000U);
}

TEST(TokenStream, TakesTimeInProportionToTokensThatAreNoText) {
  constexpr int kTokens = 200'000;  // that each wait for all before them: minutes
  const auto start = std::chrono::steady_clock::now();
  TokenStream stream(Tokenizer::parse(kBytesOfOneCharacter, "test"), false);
  std::string text;
  for (int i = 0; i < kTokens; ++i) text += stream.next(i % 5 == 0 ? 1 : 2);
  text += stream.finish();
  EXPECT_EQ(count_code_points(text), static_cast<std::size_t>(kTokens));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(stream.next(0), "a") << "as at its beginning";
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace moeloom
