// A decoder whose last layers read the keys and values of earlier ones: made again, in leaves, and token by
// token, against itself.
#include <algorithm>
#include <cmath>

#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TinyModel;

constexpr Index kWindow = 3;

/// Layer 3 reads layer 2, both with a window, and layer 4 reads layer 1.
ModelConfig lending_config() {
  ModelConfig config = testing::loud_config();
  config.num_hidden_layers = 5;
  config.windows = {kWindow, 0, kWindow, kWindow, 0};
  config.num_kv_shared_layers = 2;
  return config;
}

Batch two_sequences() {
  Batch batch;
  batch.sequences = 2;
  batch.sequence_length = 7;
  for (std::int32_t t = 0; t < 14; ++t) {
    batch.input_ids.push_back((t * 37 + 5) % 250);
    batch.targets.push_back((t * 41 + 9) % 250);
  }
  return batch;
}

std::vector<float> gradients(const ParameterStore& store) {
  std::vector<float> all;
  for (const Parameter& p : store.parameters())
    all.insert(all.end(), p.grad.flat().begin(), p.grad.flat().end());
  return all;
}

TEST(LentKeysModel, ReadersHaveNeitherKeysNorACache) {
  TinyModel model(Communicator::world(), true, lending_config());
  const auto rows = [&](const std::string& layer) {
    return model.store.find("model.layers." + layer + ".self_attn.qkv_proj.weight").spec.rows;
  };
  EXPECT_EQ(rows("2"), 64);
  EXPECT_EQ(rows("3"), 32);
  model.decoder.start_sequence(200);
  const Index bytes = model.decoder.cache_bytes();
  ModelConfig alone = lending_config();
  alone.num_kv_shared_layers = 0;
  alone.num_hidden_layers = 3;
  TinyModel lenders(Communicator::world(), true, alone);
  lenders.decoder.start_sequence(200);
  EXPECT_EQ(bytes, lenders.decoder.cache_bytes());
}

/// Two micro-batches, so that what readers of the first have left would be seen.
TEST(LentKeysModel, HasTheGradientsBitForBitWhereActivationsAreMadeAgain) {
  const auto run = [](Recompute recompute, bool twice) {
    TinyModel model(Communicator::world(), true, lending_config());
    Decoder decoder(model.config, model.store, model.mesh, testing::kernel_table(true), {}, {},
                    {.recompute = recompute});
    decoder.forward_backward(two_sequences(), {.lm = 0.1});
    if (!twice) return gradients(model.store);
    for (const Placement placement : kPlacements) std::ranges::fill(model.store.gradients(placement), 0.0f);
    decoder.forward_backward(two_sequences(), {.lm = 0.1});
    return gradients(model.store);
  };
  const std::vector<float> kept = run(Recompute::kNone, false);
  EXPECT_EQ(run(Recompute::kNone, true), kept);
  for (const Recompute recompute : {Recompute::kExperts, Recompute::kBlock}) {
    EXPECT_EQ(run(recompute, false), kept) << name_of(recompute);
    EXPECT_EQ(run(recompute, true), kept) << name_of(recompute);
  }
}

/// Central differences in fp32: enough to miss no layer's part, which is what they are for. Every expert is
/// chosen, for choices make steps.
TEST(LentKeysModel, LendersAreTrainedByTheirReaders) {
  ModelConfig config = lending_config();
  config.num_experts_per_tok = config.num_experts;
  TinyModel model(Communicator::world(), true, config);
  const Batch batch = two_sequences();
  model.decoder.forward_backward(batch, {.lm = 1});
  const Parameter& p = model.store.find("model.layers.2.self_attn.qkv_proj.weight");
  const Index row = 32 + 5;  // of a key
  for (Index j = 0; j < p.value.cols; j += 7) {
    constexpr float kStep = 3e-3f;
    const float before = p.value(row, j);
    const auto loss_at = [&](float value) {
      p.value(row, j) = value;
      model.store.mark_changed();
      return model.decoder.evaluate(batch).nll_sum;
    };
    const double difference = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
    loss_at(before);
    EXPECT_NEAR(p.grad(row, j), difference / model.mesh.world().size(), 2e-2 * (1 + std::abs(difference)))
        << j;
  }
}

/// Beyond a windowed cache's room, so that lenders drop what readers have read; then back, and on.
TEST(LentKeysModel, GivesTokenByTokenWhatItGivesAtOnce) {
  TinyModel model(Communicator::world(), true, lending_config());
  Batch batch = testing::counting(130);
  const Matrix whole = model.decoder.logits(batch);
  const std::span<const std::int32_t> ids = batch.input_ids;
  const auto expect_next = [&](Index first, Index count) {
    const float* const expected = whole.row(first + count - 1);
    const Matrix next = model.decoder.next_logits(ids.subspan(at(first), at(count)));
    for (Index v = 0; v < next.cols(); ++v)
      ASSERT_NEAR(next.row(0)[v], expected[v], 1e-4 * (1 + std::abs(expected[v]))) << first;
  };
  model.decoder.start_sequence(130);
  expect_next(0, 110);
  for (Index first = 110; first < 125; ++first) expect_next(first, 1);
  const Index kept = model.decoder.resume_sequence(ids.first(125), 130);
  EXPECT_EQ(kept, 124);
  expect_next(kept, 1);
  expect_next(125, 3);
  model.decoder.start_sequence(130);
  expect_next(0, 5);
}

}  // namespace
}  // namespace moeloom
