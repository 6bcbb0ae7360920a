// A small model of every family against itself: read piece by piece, and with padding on either side.
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>

#include "hf/family_models.hpp"
#include "support/expect_error.hpp"
#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Norms, biases, sinks and scalars begin as ones and zeros, which would hide what is done with them.
void shake(ParameterStore& store) {
  for (const Parameter& p : store.parameters()) {
    if (p.spec.placement != Placement::kWorld) continue;
    float angle = 0;
    for (float& value : p.value.flat()) value += 0.1f * std::sin(angle += 1.7f);
  }
  store.mark_changed();
}

/// Experts are shared by all ranks; a dense model is each rank's own.
struct FamilyModel : testing::TinyModel {
  explicit FamilyModel(const ModelConfig& like)
      : TinyModel(like.has_experts() ? Communicator::world()
                                     : Communicator::world().split(Communicator::world().rank(), 0),
                  true, like) {
    shake(store);
  }
};

std::vector<std::int32_t> ids_of(Index count, Index seed) {
  std::vector<std::int32_t> ids;
  for (Index i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i * 7 + i * 37 + seed) % 96));
  return ids;
}

Batch alone(const std::vector<std::int32_t>& ids) {
  Batch batch{.sequences = 1, .sequence_length = std::ssize(ids), .input_ids = ids};
  batch.targets.assign(ids.begin() + 1, ids.end());
  batch.targets.push_back(kIgnored);
  return batch;
}

/// Of the largest: sums in another order.
void expect_near(std::span<const float> got, std::span<const float> expected, double tolerance,
                 const std::string& what) {
  double largest = 1e-3, apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
    apart = std::max(apart, static_cast<double>(std::abs(got[i] - expected[i])));
  }
  EXPECT_LE(apart, tolerance * largest) << what;
}

std::span<const float> row_of(const Matrix& matrix, Index row) {
  return {matrix.row(row), at(matrix.cols())};
}

/// What a windowed cache has room for is its window and 64 positions.
TEST(EveryFamily, GivesPieceByPieceWhatItGivesAtOnce) {
  constexpr Index kLength = 96;
  for (const ModelConfig& config : testing::loud_family_models(Communicator::world().size())) {
    FamilyModel model(config);
    const std::vector<std::int32_t> ids = ids_of(kLength, 3);
    const Matrix whole = model.decoder.logits(alone(ids));
    for (const Index prompt : {1, 7, 80}) {
      model.decoder.start_sequence(kLength);
      Index read = 0;
      for (const Index piece : {prompt, Index{1}, Index{1}, Index{1}, Index{9}, Index{1}}) {
        const Matrix next = model.decoder.next_logits(std::span(ids).subspan(at(read), at(piece)));
        read += piece;
        expect_near(
            row_of(next, 0), row_of(whole, read - 1), 1e-4,
            config.model_type + ", prompt " + std::to_string(prompt) + ", read " + std::to_string(read));
      }
    }
  }
}

constexpr Index kPadded = 11;
const std::vector<Index> kLengths = {11, 6, 8};

enum class Side { kLeft, kRight };

Batch padded_at(Side side) {
  Batch batch{.sequences = std::ssize(kLengths), .sequence_length = kPadded};
  for (const Index length : kLengths) {
    const Batch real = alone(ids_of(length, length));
    const Index before = side == Side::kLeft ? kPadded - length : 0, begin = std::ssize(batch.input_ids);
    batch.input_ids.resize(at(begin + kPadded), 1);
    batch.targets.resize(at(begin + kPadded), kIgnored);
    batch.is_real.resize(at(begin + kPadded), 0);
    std::ranges::copy(real.input_ids, batch.input_ids.begin() + begin + before);
    std::ranges::copy(real.targets, batch.targets.begin() + begin + before);
    std::fill_n(batch.is_real.begin() + begin + before, length, std::uint8_t{1});
  }
  return batch;
}

struct Result {
  double nll_sum = 0, aux = 0;
  std::vector<float> world, experts;
};

Result trained(FamilyModel& model, const Batch& batch) {
  model.store.restart_gradients();
  MicroBatchLosses losses = model.decoder.forward_backward(batch, {.lm = 0.1, .aux = 0.1});
  losses.routers.sum_over(model.mesh.world());
  const auto copy_of = [](std::span<const float> g) { return std::vector<float>(g.begin(), g.end()); };
  return {losses.nll_sum, model.config.has_experts() ? aux_loss(losses.routers) : 0,
          copy_of(model.store.gradients(Placement::kWorld)),
          copy_of(model.store.gradients(Placement::kExperts))};
}

TEST(EveryFamily, PaddingOnEitherSideChangesNoLogitOfARealToken) {
  for (const ModelConfig& config : testing::loud_family_models(Communicator::world().size())) {
    FamilyModel model(config);
    for (const Side side : {Side::kLeft, Side::kRight}) {
      const Matrix padded = model.decoder.logits(padded_at(side));
      for (std::size_t s = 0; s < kLengths.size(); ++s) {
        const Index length = kLengths[s];
        const Matrix real = model.decoder.logits(alone(ids_of(length, length)));
        const Index first = static_cast<Index>(s) * kPadded + (side == Side::kLeft ? kPadded - length : 0);
        for (Index t = 0; t < length; ++t)
          expect_near(row_of(padded, first + t), row_of(real, t), 1e-4,
                      config.model_type + (side == Side::kLeft ? " left " : " right ") + std::to_string(t));
      }
    }
  }
}

/// The aux loss's means are of real tokens.
TEST(EveryFamily, LearnsTheSameFromPaddingOnEitherSide) {
  for (const ModelConfig& config : testing::loud_family_models(Communicator::world().size())) {
    FamilyModel model(config);
    const Result left = trained(model, padded_at(Side::kLeft)),
                 right = trained(model, padded_at(Side::kRight));
    EXPECT_NEAR(left.nll_sum, right.nll_sum, 1e-5 * right.nll_sum) << config.model_type;
    EXPECT_NEAR(left.aux, right.aux, 1e-5) << config.model_type;
    expect_near(left.world, right.world, 1e-4, config.model_type);
    expect_near(left.experts, right.experts, 1e-4, config.model_type);
  }
}

/// There transformers goes by the length of what is read.
TEST(EveryFamily, AlphaHoldsUpToTheLengthThatTheConfigSays) {
  ModelConfig config = testing::model("hunyuan_v1_moe");
  config.rope_scaling = NtkAlphaScaling{.alpha = 100};
  config.max_position_embeddings = 8;
  FamilyModel model(config);
  EXPECT_NO_THROW(model.decoder.logits(alone(ids_of(8, 0))));
  const std::string text =
      testing::message_of<ShapeError>([&] { model.decoder.logits(alone(ids_of(9, 0))); });
  EXPECT_NE(text.find("max_position_embeddings = 8 tokens, not 9"), std::string::npos) << text;
}

}  // namespace
}  // namespace moeloom
