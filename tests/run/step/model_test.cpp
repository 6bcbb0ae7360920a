#include "moeloom/run/model.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/run/training.hpp"
#include "train/batch_sampler.hpp"

#include <cmath>
#include <fstream>
#include <numeric>

#include "small_run.hpp"

namespace moeloom {
namespace {

using testing::small_model;

using ModelBesideARun = testing::SmallRun;

Batch batch_of(Index sequences, Index length, std::int32_t first) {
  Batch batch{.sequences = sequences, .sequence_length = length};
  for (Index t = 0; t < sequences * length; ++t) {
    batch.input_ids.push_back(static_cast<std::int32_t>((first + 7 * t) % 256));
    batch.targets.push_back(static_cast<std::int32_t>((first + 7 * t + 7) % 256));
  }
  return batch;
}

const ModelSettings kSettings{.batch = {.sequences = 4, .length = 8, .micro_batches = 2},
                              .schedule = {.peak = 3e-3, .total_steps = 20},
                              .aux_loss_coef = 0.02,
                              .seed = 3};

TEST(Model, LearnsSavesAndIsReadAgain) {
  const testing::TemporaryFolder folder;
  Model model(Mesh::single(), small_model(), kSettings);
  const std::vector<Batch> batches = {batch_of(2, 8, 1), batch_of(2, 8, 100)};
  const double before = model.evaluate(batches);
  StepLosses losses;
  for (int step = 0; step < 20; ++step) losses = model.step(batches);
  EXPECT_EQ(model.steps(), 20);
  EXPECT_EQ(losses.tokens, 32);
  EXPECT_EQ(losses.targets, 32);
  EXPECT_GT(losses.aux_loss, 0);
  EXPECT_NEAR(losses.loss, losses.lm_loss + 0.02 * losses.aux_loss, 1e-9);
  const double after = model.evaluate(batches);
  EXPECT_LT(after, before - 0.5);
  const std::vector<double> of_tokens = model.token_losses(batches[0]);
  EXPECT_EQ(of_tokens.size(), 16u);
  const std::vector<double> others = model.token_losses(batches[1]);
  EXPECT_NEAR(
      (std::reduce(of_tokens.begin(), of_tokens.end()) + std::reduce(others.begin(), others.end())) / 32,
      after, 1e-9);

  model.save(folder / "tuned");
  Model again(Mesh::single(), ModelConfig::read(folder / "tuned"), kSettings);
  EXPECT_NE(again.evaluate(batches), after);
  again.load(folder / "tuned");
  EXPECT_EQ(again.evaluate(batches), after);
  const SamplingSettings likeliest{.temperature = 0};
  const std::vector<std::int32_t> text = again.generate({1, 8, 15}, 5, likeliest);
  EXPECT_EQ(text.size(), 8u);
  EXPECT_EQ(text, model.generate({1, 8, 15}, 5, likeliest));
  EXPECT_EQ(model.logits(batches[0]).rows(), 16);
}

TEST_F(ModelBesideARun, HasItsLossesOnTheSameBatches) {
  TrainOptions options = this->options("run");
  options.data.heldout = 0;
  options.run.eval_every = 0;
  options.run.seed = 5;
  options.optimizer.learning_rate = 1e-3;
  options.optimizer.warmup = 0;
  options.router.aux_loss_coef = 0.01;
  Training training(Communicator::self(), options);
  while (training.step()) continue;
  training.finish();

  const TokenSource text(folder_ / "corpus.txt", TokenFormat::kText);
  const BatchSampler batches(text, split_tokens(text.size(), 0), options.batch, 1, 5);
  Model model(Mesh::single(), small_model(),
              {.batch = options.batch,
               .schedule = {.peak = 1e-3, .warmup_steps = 0, .total_steps = 3},
               .routing = {.balance = {.pooled = false}},
               .aux_loss_coef = 0.01,
               .seed = 5});
  Index step = 0;
  for (const double loss : losses("run"))
    EXPECT_EQ(model.step({batches.train(step++, 0, 0)}).lm_loss, loss) << "step " << step;
  EXPECT_EQ(model.steps(), 3);
}

TEST(Model, TakesAKernelOfItsUser) {
  Model model(Mesh::single(), small_model(), {.batch = {.sequences = 1, .length = 4}, .kernels = "none"});
  ASSERT_FALSE(model.kernel_reports().empty());
  EXPECT_FALSE(model.kernel_reports().front().applied);
  const Batch batch = batch_of(1, 4, 9);
  const Matrix reference = model.logits(batch);
  KernelTable kernels = model.kernels();
  KernelRegistry::builtin().apply("fused_rmsnorm", kernels, {.model_type = "qwen3_moe"});
  model.use(kernels);
  EXPECT_EQ(model.kernels().rmsnorm.forward, fused_rmsnorm().forward);
  const Matrix fused = model.logits(batch);
  for (Index i = 0; i < fused.view().size(); ++i)
    ASSERT_NEAR(fused.view().data[i], reference.view().data[i], 1e-5);
}

TEST(Model, SaysWhatABatchMustBe) {
  Model model(Mesh::single(), small_model(), kSettings);
  EXPECT_THROW(model.step({batch_of(2, 8, 1)}), AgreedError) << "two micro-batches a step";
  EXPECT_THROW(model.step({batch_of(2, 8, 1), batch_of(2, 7, 1)}), AgreedError);
  EXPECT_THROW(model.load("/nowhere"), AgreedError);
  EXPECT_THROW(Model(Mesh::single(), small_model(), {.batch = {.sequences = 3, .micro_batches = 2}}),
               AgreedError);
  ModelConfig wrong = small_model();
  wrong.num_experts_per_tok = 9;
  EXPECT_THROW(Model(Mesh::single(), wrong, kSettings), AgreedError);
  Batch batch = batch_of(2, 8, 1);
  batch.input_ids[3] = 256;
  EXPECT_THROW(model.logits(batch), AgreedError);
  EXPECT_THROW(model.evaluate({batch}), AgreedError);
  batch = batch_of(2, 8, 1);
  batch.given_topk_idx = {{0, 1}};
  EXPECT_THROW(model.token_losses(batch), AgreedError);
  batch = batch_of(2, 8, 1);
  batch.is_real = {1};
  EXPECT_THROW(model.token_losses(batch), AgreedError);
  EXPECT_THROW(model.generate({1}, 4, {.temperature = -1}), AgreedError);
  EXPECT_THROW(model.generate({256}, 4), AgreedError);
  EXPECT_THROW(model.generate({1}, small_model().max_position_embeddings), AgreedError);
  EXPECT_EQ(model.steps(), 0);
}

}  // namespace
}  // namespace moeloom
