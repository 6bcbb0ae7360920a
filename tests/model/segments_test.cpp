// Examples that share rows of a batch: the model's losses and gradients are those of each example alone.
#include "model/decoder.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/small_model.hpp"
#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TinyModel;

/// Ids of which every third is not learned.
Batch example_of(Index length, Index number) {
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = length;
  for (Index i = 0; i < length; ++i)
    batch.input_ids.push_back(static_cast<std::int32_t>((number * 31 + i * i * 7 + i) % 251));
  for (Index i = 1; i <= length; ++i)
    batch.targets.push_back(i < length && i % 3 != 0 ? batch.input_ids[at(i)] : kIgnored);
  return batch;
}

/// Two rows of 20: examples of 7, 12 and 1; 9 and 6, and padding of 5.
const std::vector<std::vector<Index>> kRows = {{7, 12, 1}, {9, 6}};
constexpr Index kRowLength = 20;

std::vector<Batch> examples() {
  std::vector<Batch> all;
  for (const std::vector<Index>& row : kRows)
    for (const Index length : row) all.push_back(example_of(length, std::ssize(all)));
  return all;
}

Batch packed() {
  Batch batch;
  batch.sequences = std::ssize(kRows);
  batch.sequence_length = kRowLength;
  batch.segment_offsets = {0};
  Index number = 0;
  for (const std::vector<Index>& row : kRows) {
    for (const Index length : row) {
      const Batch example = example_of(length, number++);
      batch.input_ids.insert(batch.input_ids.end(), example.input_ids.begin(), example.input_ids.end());
      batch.targets.insert(batch.targets.end(), example.targets.begin(), example.targets.end());
      batch.segment_offsets.push_back(batch.segment_offsets.back() + length);
    }
    batch.is_real.resize(batch.input_ids.size(), 1);
    const Index end = ceil_div(std::ssize(batch.input_ids), kRowLength) * kRowLength;
    if (end > batch.segment_offsets.back()) batch.segment_offsets.push_back(end);
    batch.input_ids.resize(at(end), 0);
    batch.targets.resize(at(end), kIgnored);
    batch.is_real.resize(at(end), 0);
  }
  return batch;
}

std::vector<ModelConfig> models() {
  ModelConfig windowed = testing::loud_config();
  windowed.windows = {4, 0, 4};
  ModelConfig latent = testing::deepseek_config();
  latent.initializer_range = 0.3;
  ModelConfig longrope =
      testing::loud_config();  // examples of 9 and 12 tokens turn in another way than the others
  const auto pairs = at(longrope.rotary_dim() / 2);
  longrope.rope_scaling = LongRopeScaling{.short_factor = std::vector<double>(pairs, 1.5),
                                          .long_factor = std::vector<double>(pairs, 4),
                                          .factor = 2,
                                          .original_max_position_embeddings = 8};
  return {testing::loud_config(), windowed, latent, longrope};
}

struct Gradients {
  MicroBatchLosses losses;
  std::vector<float> world, experts;
};

Gradients gradients_of(TinyModel& model, const std::vector<Batch>& batches) {
  Gradients sum;
  model.store.restart_gradients();
  for (const Batch& batch : batches) {
    const MicroBatchLosses losses = model.decoder.forward_backward(batch, {.lm = 0.1});
    sum.losses.nll_sum += losses.nll_sum;
    sum.losses.counted_targets += losses.counted_targets;
  }
  const auto copy_of = [](std::span<const float> g) { return std::vector<float>(g.begin(), g.end()); };
  sum.world = copy_of(model.store.gradients(Placement::kWorld));
  sum.experts = copy_of(model.store.gradients(Placement::kExperts));
  return sum;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  ASSERT_GT(largest, 0);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5 * largest) << i;
}

/// Every rank has the same examples, so that a rank's gradients of what it packed are comparable.
TEST(Segments, HaveTheLossesAndGradientsOfTheExamplesAlone) {
  for (const bool fused : {false, true})
    for (const ModelConfig& config : models()) {
      TinyModel model(Communicator::world(), fused, config);
      const Gradients alone = gradients_of(model, examples());
      const Gradients together = gradients_of(model, {packed()});
      EXPECT_EQ(together.losses.counted_targets, alone.losses.counted_targets);
      EXPECT_NEAR(together.losses.nll_sum, alone.losses.nll_sum, 1e-6 * alone.losses.nll_sum);
      expect_near(together.world, alone.world);
      expect_near(together.experts, alone.experts);
    }
}

TEST(Segments, HaveTheLogitsOfTheExamplesAlone) {
  TinyModel model(Communicator::world(), true);
  const Matrix together = model.decoder.logits(packed());
  Index first = 0, number = 0;
  for (const Batch& example : examples()) {
    const Matrix alone = model.decoder.logits(example);
    for (Index i = 0; i < alone.view().size(); ++i)
      ASSERT_NEAR(alone.view().data[i], together.row(first)[i], 2e-5) << "example " << number;
    first += example.tokens();
    ++number;
  }
}

/// What a test above could not see: that without segments the numbers are others.
TEST(Segments, AreNotWhatAWholeRowGives) {
  TinyModel model(Communicator::world(), true);
  Batch whole = packed();
  const double apart = model.decoder.evaluate(whole).nll_sum;
  whole.segment_offsets.clear();
  EXPECT_GT(std::abs(model.decoder.evaluate(whole).nll_sum - apart), 1e-3 * apart);
}

/// Central differences of the loss at some weights of each parameter. The router's choice is no function of
/// small differences only where no two scores tie, which random weights do not.
TEST(Segments, HaveTheGradientsThatCentralDifferencesSay) {
  TinyModel model(Communicator::world(), true, testing::tiny_config());
  const Batch batch = packed();
  const Gradients analytic = gradients_of(model, {batch});
  const auto loss = [&] {
    model.store.mark_changed();
    return model.decoder.evaluate(batch).nll_sum / model.mesh.world().size();
  };
  for (const char* name :
       {"model.layers.0.self_attn.qkv_proj.weight", "model.layers.2.self_attn.o_proj.weight",
        "model.layers.1.input_layernorm.weight", "model.embed_tokens.weight"}) {
    const Parameter& p = model.store.find(name);
    Index largest = 0;
    for (Index i = 0; i < p.value.size(); ++i)
      if (std::abs(p.grad.flat()[at(i)]) > std::abs(p.grad.flat()[at(largest)])) largest = i;
    const auto i = at(largest);
    const float kept = p.value.flat()[i], step = 1e-2f;
    p.value.flat()[i] = kept + step;
    const double above = loss();
    p.value.flat()[i] = kept - step;
    const double below = loss();
    p.value.flat()[i] = kept;
    const double expected = 0.1 * (above - below) / (2 * static_cast<double>(step));
    EXPECT_NEAR(p.grad.flat()[i], expected, 2e-2 * std::abs(expected)) << name;
  }
}

TEST(Segments, OfAnotherBatchAreRefused) {
  TinyModel model(Communicator::world(), true);
  Batch batch = packed();
  batch.segment_offsets.pop_back();
  EXPECT_THROW(model.decoder.logits(batch), ShapeError);
}

}  // namespace
}  // namespace moeloom
