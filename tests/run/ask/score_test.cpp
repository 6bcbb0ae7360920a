#include "ask/score.hpp"

#include "moeloom/model/hf/config.hpp"

#include <numbers>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr const char* kTokenizer = R"({
  "added_tokens": [{"id": 5, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "model": {"type": "BPE", "merges": [], "byte_fallback": true,
            "vocab": {"a": 0, "bc": 1, "<0xE4>": 2, "<0xBD>": 3, "<0xA0>": 4}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}})";

constexpr std::uint32_t kA = 0, kBc = 1, kByteE4 = 2, kByteBd = 3, kByteA0 = 4, kEnd = 5;

/// A model whose vocabulary has padding behind the tokenizer's ids.
ModelText words() {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "tokenizer.json", kTokenizer);
  ModelConfig config;
  config.vocab_size = 10;
  return ModelText::of(folder / "", config);
}

ModelText bytes() {
  ModelConfig config;
  config.vocab_size = 256;
  return ModelText::of("/nowhere", config);
}

TEST(Score, CountsNatsOfLearnedTokensAndBitsOfTheirText) {
  const ModelText text = words();
  struct Case {
    const char* name;
    std::vector<std::uint32_t> ids;
    std::vector<std::uint8_t> learned;
    std::vector<double> losses;  // of the token behind each
    Score expected;
  };
  const std::vector<Case> cases = {{"a text with its end token",
                                    {kA, kBc, kByteE4, kByteBd, kByteA0, kEnd},
                                    {1, 1, 1, 1, 1, 1},
                                    {1, 0.5, 0.25, 0.25, 2, 0},
                                    {.nats = 4, .tokens = 5, .text_nats = 2, .bytes = 2 + 3}},
                                   {"two turns, the first token not predicted",
                                    {kBc, kA, kBc, kEnd, kA, kBc, kEnd},
                                    {1, 0, 1, 1, 0, 1, 1},
                                    {9, 1, 2, 9, 3, 4, 0},
                                    {.nats = 10, .tokens = 4, .text_nats = 4, .bytes = 4}},
                                   {"a character counts where it ends",
                                    {kA, kByteE4, kByteBd, kByteA0},
                                    {0, 0, 0, 1},
                                    {9, 9, 1, 0},
                                    {.nats = 1, .tokens = 1, .text_nats = 1, .bytes = 3}},
                                   {"an id without a token", {kA, 9, kA}, {1, 1, 1}, {2, 1, 0}, {3, 2, 1, 1}},
                                   {"nothing learned", {kA, kBc}, {1, 0}, {9, 9}, {}},
                                   {"one token", {kA}, {1}, {9}, {}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto [score, logprobs] = score_example({c.ids, c.learned}, c.losses, &text);
    EXPECT_DOUBLE_EQ(score.nats, c.expected.nats);
    EXPECT_EQ(score.tokens, c.expected.tokens);
    EXPECT_EQ(std::ssize(logprobs), c.expected.tokens);
    EXPECT_DOUBLE_EQ(score.text_nats, c.expected.text_nats);
    EXPECT_EQ(score.bytes, c.expected.bytes);
    EXPECT_EQ(score_example({c.ids, c.learned}, c.losses, nullptr).score.bytes, 0) << "ids without a meaning";
  }
  const auto [score, logprobs] = score_example({cases[0].ids, cases[0].learned}, cases[0].losses, &text);
  EXPECT_DOUBLE_EQ(score.nats_per_token(), 0.8);
  EXPECT_DOUBLE_EQ(score.bits_per_byte(), 0.4 / std::numbers::ln2);
  EXPECT_EQ(logprobs, (std::vector<double>{-1, -0.5, -0.25, -0.25, -2}));
}

TEST(Score, HasTheSameBitsAByteForTwoTokenizersOfOneProbability) {
  const ModelText text = words(), plain = bytes();
  const std::vector<std::uint32_t> ids = {kA, kBc, kA, kEnd}, letters = {'a', 'b', 'c', 'a'};
  const std::vector<std::uint8_t> learned(4, 1);
  Score one = score_example({ids, learned}, std::vector<double>{2, 1, 7, 0}, &text).score;
  const Score other = score_example({letters, learned}, std::vector<double>{0.5, 1.5, 1, 0}, &plain).score;
  EXPECT_EQ(one.bytes, 3);
  EXPECT_EQ(other.bytes, 3);
  EXPECT_DOUBLE_EQ(one.bits_per_byte(), other.bits_per_byte());
  one += other;
  EXPECT_EQ(one.tokens, 6);
  EXPECT_DOUBLE_EQ(one.bits_per_byte(), other.bits_per_byte());
}

}  // namespace
}  // namespace moeloom
