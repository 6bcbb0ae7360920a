#include "moeloom/model/generate.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <set>

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
  return generate(model.decoder, model.mesh, kPrompt, count, settings);
}

TEST(SampleToken, IsTheLikeliestAtTemperatureZeroAndTheLowerIdOnATie) {
  const std::vector<float> logits = {1, 3, -2, 3, 2};
  for (Index position = 0; position < 20; ++position) {
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, position), 1);
    EXPECT_EQ(sample_token(logits, {.temperature = 5, .top_k = 1}, position), 1);
  }
  EXPECT_THROW(sample_token({}, {}, 0), ShapeError);
}

TEST(SampleToken, FollowsTheSoftmaxOfTheLogits) {
  const std::vector<float> logits = {0, 1, -1, 0.5f};
  constexpr Index kDraws = 40000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> probability, seen(logits.size());
    double sum = 0;
    for (const float logit : logits) sum += probability.emplace_back(std::exp(logit / temperature));
    for (Index position = 0; position < kDraws; ++position)
      seen[at(sample_token(logits, {.temperature = temperature, .seed = 3}, position))] += 1;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = probability[i] / sum;
      const double deviation = std::sqrt(p * (1 - p) / kDraws);
      EXPECT_NEAR(seen[i] / kDraws, p, 5 * deviation) << "token " << i << " at " << temperature;
    }
  }
}

TEST(SampleToken, ChoosesAmongTheTopKAndFindsThemAll) {
  const std::vector<float> logits = {0.1f, 0.4f, 0.2f, 0.3f, 0.4f};
  std::set<std::int32_t> found, all;
  for (Index position = 0; position < 300; ++position) {
    found.insert(sample_token(logits, {.top_k = 3}, position));
    all.insert(sample_token(logits, {.top_k = 9}, position));
  }
  EXPECT_EQ(found, (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(all.size(), logits.size()) << "more than there are is all of them";
}

TEST(SampleToken, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(64, 0.0f);
  const auto draws = [&](std::uint64_t seed) {
    Ids ids;
    for (Index position = 0; position < 50; ++position)
      ids.push_back(sample_token(logits, {.seed = seed}, position));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
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

TEST(Generate, GivesRankZeroTheTextOfOneRankWhoeverHoldsTheExperts) {
  TinyModel shared(Communicator::world(), true), whole(this_rank_alone(), true);
  for (const double temperature : {0.0, 1.0}) {
    const SamplingSettings settings{.temperature = temperature, .seed = 5};
    const Ids text = text_of(shared, 12, settings);
    if (Communicator::world().rank() == 0) {
      EXPECT_EQ(text, text_of(whole, 12, settings));
    } else {
      EXPECT_TRUE(text.empty()) << "others lend their experts";
    }
  }
}

TEST(Generate, TellsEachTokenAsItComes) {
  TinyModel model(this_rank_alone(), false);
  Ids told = kPrompt;
  const Ids text = generate(model.decoder, model.mesh, kPrompt, 5, {.seed = 1},
                            [&](std::int32_t token) { told.push_back(token); });
  EXPECT_EQ(told, text);
}

TEST(Generate, EndsWhereItsCacheDoes) {
  TinyModel model(this_rank_alone(), false);
  const Ids text = text_of(model, 3, {});
  const std::span last = std::span(text).last(1);
  EXPECT_EQ(model.decoder.next_logits(last).rows(), 1) << "the last token was not fed yet";
  EXPECT_THROW(model.decoder.next_logits(last), ShapeError);
  EXPECT_EQ(text_of(model, 0, {}), kPrompt);
  EXPECT_THROW(generate(model.decoder, model.mesh, {}, 3, {}), ShapeError);
}

}  // namespace
}  // namespace moeloom
