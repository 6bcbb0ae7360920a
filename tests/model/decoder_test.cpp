#include "model/decoder.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::counting;
using testing::TinyModel;

void expect_cached_logits(const ModelConfig& config) {
  TinyModel model(Communicator::world(), true, config);
  Batch batch;
  if (model.mesh.world().rank() == 0) {
    batch.sequences = 1;
    batch.sequence_length = 9;
    for (std::int32_t i = 0; i < 9; ++i) batch.input_ids.push_back(i * 5 % 17);
  }
  const Matrix whole = model.decoder.logits(batch);
  model.decoder.start_sequence(9);
  const std::span ids(batch.input_ids);
  const auto part = [&](std::size_t begin, std::size_t count) {
    return ids.empty() ? ids : ids.subspan(begin, count);
  };
  for (const auto& [begin, count] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 1}, {5, 1}, {6, 3}}) {
    const Matrix next = model.decoder.next_logits(part(begin, count));
    for (Index v = 0; v < next.view().size(); ++v)
      EXPECT_NEAR(next.view().data[v], whole.view()(static_cast<Index>(begin + count) - 1, v), 1e-5);
  }
  if (model.mesh.world().rank() == 0 && model.mesh.world().size() == 1) {
    EXPECT_THROW(model.decoder.next_logits(ids.subspan(0, 1)), ShapeError);
  }
}

TEST(Decoder, NextLogitsWithTheCacheAreThoseOfTheWholeSequence) {
  for (const ModelConfig& config : {testing::loud_config(), testing::loud_hybrid_config("lfm2_moe"),
                                    testing::loud_hybrid_config("qwen3_next")}) {
    SCOPED_TRACE(config.model_type);
    expect_cached_logits(config);
  }
}

TEST(Decoder, ASequenceThatOutgrowsLongRopesShortFactorsIsTurnedAnew) {
  ModelConfig config = testing::loud_config();
  config.rope_scaling = LongRopeScaling{.short_factor = {1, 1.5, 2, 2.5},
                                        .long_factor = {1, 4, 9, 16},
                                        .factor = 2,
                                        .original_max_position_embeddings = 5};
  TinyModel growing(Communicator::world(), true, config);
  const std::vector<std::int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  const bool holds_it = growing.mesh.world().rank() == 0;
  growing.decoder.start_sequence(8);
  for (std::size_t n = 1; n <= ids.size(); ++n) {
    const std::span next = std::span(ids).subspan(n - 1, holds_it ? 1 : 0);
    const Matrix grown = growing.decoder.next_logits(next);
    Batch batch;
    batch.sequences = holds_it ? 1 : 0;
    batch.sequence_length = holds_it ? static_cast<Index>(n) : 0;
    if (holds_it) batch.input_ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    TinyModel fresh(Communicator::world(), true, config);
    const Matrix whole = fresh.decoder.logits(batch);
    for (Index v = 0; v < grown.view().size(); ++v)
      EXPECT_NEAR(grown.view().data[v], whole.view()(static_cast<Index>(n) - 1, v), 1e-5) << n << " tokens";
  }
  const std::span shorter = std::span(ids).first(holds_it ? 4 : 0);
  EXPECT_EQ(growing.decoder.resume_sequence(shorter, 8), 0) << "the long sequence's keys do not serve it";
}

/// Layers with a window and without one, in a sequence that is many windows long.
ModelConfig windowed_config() {
  ModelConfig config = testing::loud_config();
  config.windows = {6, 0, 40};
  return config;
}

std::vector<std::int32_t> long_text(std::int32_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.push_back(i * i % 251);
  return ids;
}

void expect_last_row(const Matrix& next, const Matrix& whole, Index tokens) {
  for (Index v = 0; v < next.view().size(); ++v)
    ASSERT_NEAR(next.view().data[v], whole.view()(tokens - 1, v), 2e-5) << tokens << " tokens";
}

TEST(Decoder, KeepsTheWindowsOfWindowedLayersAndAnswersAsForTheWholeSequence) {
  TinyModel model(Communicator::world(), true, windowed_config());
  const std::vector<std::int32_t> ids = long_text(400);
  const bool holds_it = model.mesh.world().rank() == 0;
  Batch batch;
  if (holds_it) batch = {.sequences = 1, .sequence_length = 400, .input_ids = ids, .targets = {}};
  const Matrix whole = model.decoder.logits(batch);
  model.decoder.start_sequence(400);
  const Index held = model.decoder.cache_bytes();
  const Index position = 2 * 16 * static_cast<Index>(sizeof(float));  // keys and values of 2 heads of 8
  EXPECT_LT(held, (400 + 6 + 40 + 2 * 128) * position);
  for (std::size_t begin = 0; begin < ids.size();) {
    const std::size_t count = begin == 0 ? 90 : begin == 100 ? 200 : 1;
    const Matrix next = model.decoder.next_logits(std::span(ids).subspan(begin, holds_it ? count : 0));
    begin += count;
    expect_last_row(next, whole, static_cast<Index>(begin));
    EXPECT_EQ(model.decoder.cache_bytes(), held);
  }
}

TEST(Decoder, ResumesBehindTheLongestBeginningThatItsCacheServes) {
  struct Case {
    std::vector<Index> windows;
    std::size_t same, tokens;  // of 300 that were read
    Index kept;
    std::string hybrid = {};  // a family whose state stands behind the last position alone
  };
  const std::vector<Case> cases = {{{}, 300, 310, 300},
                                   {{}, 120, 310, 120},
                                   {{}, 300, 300, 299},
                                   {{}, 0, 5, 0},
                                   {{}, 40, 40, 39},
                                   {{6, 0, 40}, 300, 310, 300},
                                   {{6, 0, 40}, 120, 310, 0},
                                   {{}, 300, 310, 300, "qwen3_next"},
                                   {{}, 300, 310, 300, "lfm2_moe"},
                                   {{}, 120, 310, 0, "qwen3_next"},
                                   {{}, 300, 300, 0, "lfm2_moe"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.windows.size()) + " " + std::to_string(c.same) + c.hybrid);
    ModelConfig config = c.hybrid.empty() ? testing::loud_config() : testing::loud_hybrid_config(c.hybrid);
    config.windows = c.windows;
    TinyModel model(Communicator::world(), true, config);
    const bool holds_it = model.mesh.world().rank() == 0;
    const std::vector<std::int32_t> read = long_text(300);
    std::vector<std::int32_t> ids = long_text(static_cast<std::int32_t>(c.tokens));
    for (std::size_t i = c.same; i < ids.size(); ++i) ids[i] = (ids[i] + 1) % 256;
    const auto mine = [&](std::span<const std::int32_t> all) { return all.first(holds_it ? all.size() : 0); };
    model.decoder.start_sequence(300);
    model.decoder.next_logits(mine(read));
    const Index kept = model.decoder.resume_sequence(mine(ids), 320);
    EXPECT_EQ(kept, holds_it ? c.kept : 0);
    const Matrix next = model.decoder.next_logits(mine(ids).subspan(at(kept)));
    Batch batch;
    batch.sequences = holds_it ? 1 : 0;
    batch.sequence_length = std::ssize(mine(ids));
    batch.input_ids.assign(mine(ids).begin(), mine(ids).end());
    expect_last_row(next, model.decoder.logits(batch), static_cast<Index>(c.tokens));
  }
}

TEST(Decoder, UsesAnotherTableFromTheNextForwardOn) {
  TinyModel model(Communicator::world(), false);
  const Batch batch = counting(4);
  const auto step = [&](bool fused) {
    model.decoder.use(testing::kernel_table(fused));
    model.store.restart_gradients();
    model.decoder.forward_backward(batch, {.lm = 1});
    return Matrix::copy_of(model.store.find("model.layers.0.mlp.gate.weight").grad);
  };
  const Matrix loop = step(false), grouped = step(true), loop_again = step(false);
  for (Index i = 0; i < loop.view().size(); ++i) {
    EXPECT_EQ(loop.view().data[i], loop_again.view().data[i]);
    EXPECT_NEAR(loop.view().data[i], grouped.view().data[i], 1e-4);  // sums in another order
  }
}

TEST(Decoder, NamesTheFirstLayerThatIsNotFinite) {
  TinyModel model(Communicator::world(), false);
  const Batch batch = counting(4);
  model.decoder.logits(batch);
  EXPECT_FALSE(model.decoder.first_non_finite_layer());
  model.store.find("model.layers.1.mlp.down_proj.weight").value(0, 0) = NAN;
  model.decoder.logits(batch);
  EXPECT_EQ(model.decoder.first_non_finite_layer(), 1);
}

/// By the logits of the same weights without either.
TEST(Decoder, AddsABiasToItsHeadAndDividesItsLogits) {
  for (const bool tied : {false, true})
    for (const bool leaves : {false, true}) {
      ModelConfig plain = testing::loud_config(), other = plain;
      plain.tie_word_embeddings = other.tie_word_embeddings = tied;
      other.head_bias = true;
      other.logits_scaling = 3;
      const Index words = plain.vocab_size;
      TinyModel without(Communicator::world(), true, plain);
      const Mesh mesh = testing::whole_ep(Communicator::world());
      ParameterStore store(parameter_specs(other, testing::experts_here(other, mesh)), {},
                           {.sequences = leaves ? 1 : 0});
      initialise(store, other, 5);
      const MatrixView bias = store.find("lm_head.bias").value;
      copy(testing::random_matrix(words, 1, 3), bias);
      Decoder decoder(other, store, mesh, testing::kernel_table(true));

      const Batch batch = counting(5);
      Matrix expected = without.decoder.logits(batch);
      const Matrix got = decoder.logits(batch);
      for (Index t = 0; t < expected.rows(); ++t)
        for (Index v = 0; v < words; ++v) {
          float& logit = expected.row(t)[v];
          logit = (logit + bias.flat()[at(v)]) / 3;
          ASSERT_NEAR(got.row(t)[v], logit, 1e-5);
        }

      double nll = 0;
      std::vector<double> gradient(at(words));  // of the sum over this rank's tokens
      for (Index t = 0; t < expected.rows(); ++t) {
        double sum = 0;
        for (Index v = 0; v < words; ++v) sum += std::exp(static_cast<double>(expected.row(t)[v]));
        const Index target = batch.targets[at(t)];
        nll += std::log(sum) - static_cast<double>(expected.row(t)[target]);
        for (Index v = 0; v < words; ++v)
          gradient[at(v)] +=
              (std::exp(static_cast<double>(expected.row(t)[v])) / sum - (v == target ? 1 : 0)) / 3;
      }
      nll *= mesh.world().size();
      EXPECT_NEAR(decoder.evaluate(batch).nll_sum, nll, 1e-4);
      EXPECT_NEAR(decoder.forward_backward(batch, {.lm = 1}).nll_sum, nll, 1e-4);
      const Parameter& parameter = store.find("lm_head.bias");
      for (Index v = 0; v < words; ++v) {
        const auto i = at(parameter.offset + v);
        const float sum = leaves ? ExactSums::value_of(store.sums(Placement::kWorld)->sums()[i])
                                 : parameter.grad.flat()[at(v)];
        EXPECT_NEAR(sum, gradient[at(v)], 1e-5) << v;
      }
    }
}

TEST(Decoder, RefusesTokensOutsideTheVocabulary) {
  TinyModel model(Communicator::world(), false);
  Batch batch = counting(1);
  batch.input_ids = {static_cast<std::int32_t>(model.config.vocab_size)};
  EXPECT_THROW(model.decoder.logits(batch), ShapeError);
}

}  // namespace
}  // namespace moeloom
