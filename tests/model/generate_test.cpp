#include "model/generate.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TinyModel;
using Ids = std::vector<std::int32_t>;

const Ids kPrompt = {10, 200, 30, 40};

/// A model for every rank alone, whatever the others do.
Communicator this_rank_alone() {
  return Communicator::world().split(Communicator::world().rank(), 0);
}

Ids text_of(TinyModel& model, Index count, const SamplingSettings& settings) {
  return generate(model.decoder, model.mesh, kPrompt, {.tokens = count, .sampling = settings});
}

TEST(Generate, GreedilyTakesTheLikeliestTokenAfterTheWholeText) {
  TinyModel model(this_rank_alone(), true);
  const Ids text = text_of(model, 8, {.temperature = 0});
  ASSERT_EQ(text.size(), kPrompt.size() + 8);
  EXPECT_TRUE(std::ranges::equal(kPrompt, std::span(text).first(kPrompt.size())));
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = static_cast<Index>(text.size());
  batch.input_ids = text;
  const Matrix logits = model.decoder.logits(batch);
  for (std::size_t i = kPrompt.size(); i < text.size(); ++i) {
    const std::span row(logits.row(static_cast<Index>(i) - 1), at(logits.cols()));
    // The cache adds up in another order: the likeliest but for what that can do.
    EXPECT_GE(row[at(text[i])], *std::ranges::max_element(row) - 1e-4f) << "token " << i;
  }
}

TEST(Generate, IsTheSameForTheSameSeedAndAnotherForAnother) {
  TinyModel model(this_rank_alone(), true);
  const Ids once = text_of(model, 30, {.seed = 7});
  EXPECT_EQ(text_of(model, 30, {.seed = 7}), once) << "nothing is left of the text before";
  EXPECT_NE(text_of(model, 30, {.seed = 8}), once);
  const Ids longer = text_of(model, 40, {.seed = 7});
  EXPECT_TRUE(std::ranges::equal(once, std::span(longer).first(once.size())));
}

TEST(Generate, GivesEachRankItsTextWhoeverHoldsTheExperts) {
  TinyModel shared(Communicator::world(), true), whole(this_rank_alone(), true);
  const Index rank = Communicator::world().rank();
  for (const double temperature : {0.0, 1.0}) {
    const GenerationSettings settings{
        .tokens = 12 + rank,
        .sampling = {.temperature = temperature, .seed = static_cast<std::uint64_t>(5 + rank)}};
    const Ids text = generate(shared.decoder, shared.mesh, kPrompt, settings);
    EXPECT_EQ(text, generate(whole.decoder, whole.mesh, kPrompt, settings)) << "others' texts end sooner";
    const Ids first = generate(shared.decoder, shared.mesh, rank == 0 ? kPrompt : Ids{}, settings);
    EXPECT_EQ(first, rank == 0 ? text : Ids{}) << "the others lend their experts";
  }
}

TEST(Generate, TellsEachTokenAndStopsWhenToldSo) {
  TinyModel model(this_rank_alone(), false);
  Ids told = kPrompt;
  const Ids text = generate(model.decoder, model.mesh, kPrompt, {.tokens = 9, .sampling = {.seed = 1}},
                            [&](std::int32_t token) {
                              told.push_back(token);
                              return told.size() < kPrompt.size() + 5;
                            });
  EXPECT_EQ(told, text);
  EXPECT_EQ(text.size(), kPrompt.size() + 5);
}

TEST(Generate, EndsWithAnEndToken) {
  TinyModel model(this_rank_alone(), false);
  const Ids text = text_of(model, 20, {.seed = 1});
  const std::int32_t end = text[kPrompt.size() + 6];
  const auto first = std::find(text.begin() + kPrompt.size(), text.end(), end);
  EXPECT_EQ(generate(model.decoder, model.mesh, kPrompt,
                     {.tokens = 20, .sampling = {.seed = 1}, .end_tokens = {-1, end}}),
            Ids(text.begin(), first + 1));
}

TEST(Generate, ResumedReadsOnlyWhatIsNewAndAnswersAsAnew) {
  for (const std::vector<Index>& windows : {std::vector<Index>{}, {3, 0, 5}}) {
    ModelConfig config = testing::loud_config();
    config.windows = windows;
    TinyModel chatting(this_rank_alone(), true, config), fresh(this_rank_alone(), true, config);
    const GenerationSettings settings{.tokens = 6, .sampling = {.temperature = 0}};
    GenerationSettings resumed = settings;
    resumed.resumes = true;
    Ids said = kPrompt;
    for (int turn = 0; turn < 4; ++turn) {
      Index read = 0;
      const auto count = [&](std::int32_t) {
        const Index now = chatting.decoder.layers().front().moe()->routing().tokens();
        read = std::max(read, now);
        return true;
      };
      const Ids answered = generate(chatting.decoder, chatting.mesh, said, resumed, count);
      EXPECT_EQ(answered, generate(fresh.decoder, fresh.mesh, said, settings));
      // The last token of an answer was not read when the answer ended.
      EXPECT_EQ(read, turn == 0 ? std::ssize(kPrompt) : 3) << "turn " << turn;
      said = answered;
      said.push_back(7);
      said.push_back(90 + turn);
    }
  }
}

TEST(Generate, EndsWhereItsCacheDoes) {
  TinyModel model(this_rank_alone(), false);
  const Ids text = text_of(model, 3, {});
  const std::span last = std::span(text).last(1);
  EXPECT_EQ(model.decoder.next_logits(last).rows(), 1) << "the last token was not fed yet";
  EXPECT_THROW(model.decoder.next_logits(last), ShapeError);
  EXPECT_EQ(text_of(model, 0, {}), kPrompt);
}

}  // namespace
}  // namespace moeloom
