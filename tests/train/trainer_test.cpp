#include "moeloom/train/trainer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>

#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelConfig tiny() {
  ModelConfig config;
  config.vocab_size = 256;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.moe_intermediate_size = 20;
  config.num_hidden_layers = 3;
  config.mlp_only_layers = {1};
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.num_experts = 4;
  config.num_experts_per_tok = 2;
  config.initializer_range = 0.1;
  return config;
}

/// A text file that lives as long as the test; each rank has its own.
class TextFile {
 public:
  TextFile() {
    path_ =
        std::filesystem::temp_directory_path() / ("moeloom-trainer-" + std::to_string(::getpid()) + ".txt");
    std::ofstream out(path_);
    for (int i = 0; i < 400; ++i) out << "In the beginning was line " << i * i % 97 << ", and it was good.\n";
  }
  ~TextFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct TrainingRunSettings {
  Index global_batch = 8;
  Index accumulation = 1;
  bool fused = true;
  OnNan on_nan = OnNan::kStop;
};

/// Everything a run needs, on a part of the world as large as the shape.
struct TrainingRun {
  TextFile text;
  TokenSource tokens{text.path(), TokenFormat::kText};
  Mesh mesh;
  ModelConfig config = tiny();
  ParameterStore store;
  Decoder decoder;
  ShardedOptimizer optimizer;
  BatchShape batch;
  BatchSampler sampler;
  Trainer trainer;

  TrainingRun(MeshShape shape, TrainingRunSettings settings)
      : mesh(Communicator::world().split(Communicator::world().rank() / static_cast<int>(shape.world()),
                                         Communicator::world().rank()),
             shape),
        store(parameter_specs(config,
                              experts_of(config.num_experts, shape.ep, shape.ep_rank(mesh.world().rank())))),
        decoder((initialise(store, config, 3), config), store, mesh, testing::kernel_table(settings.fused)),
        optimizer(store, mesh, {}),
        batch{.global_batch = settings.global_batch,
              .sequence_length = 24,
              .accumulation = settings.accumulation,
              .world = shape.world()},
        sampler(tokens, split_tokens(tokens.size(), 0.1), batch, 17),
        trainer(decoder, store, mesh, optimizer, sampler,
                {.schedule = {.peak = 3e-3, .warmup_steps = 3, .total_steps = 20, .final_fraction = 0.1},
                 .batch = batch,
                 .aux_loss_coef = 0.01,
                 .z_loss_coef = 0.001,
                 .on_nan = settings.on_nan}) {}

  std::vector<double> losses(Index steps) {
    std::vector<double> losses;
    for (Index step = 0; step < steps; ++step) {
      const StepReport report = trainer.step(step);
      losses.push_back(report.loss);
      losses.push_back(report.grad_norm);
    }
    return losses;
  }

  /// Gradients of step 0 summed over their ranks, by HF name, of the experts that live here.
  std::map<std::string, std::vector<double>> gradients() {
    store.restart_gradients();
    decoder.forward_backward(
        sampler.train(0, 0, mesh.world().rank()),
        {.lm = 1.0 / static_cast<double>(batch.global_batch * batch.sequence_length), .aux = 0.01});
    std::map<std::string, std::vector<double>> by_name;
    for (const Parameter& p : store.parameters()) {
      std::vector<double> sum(p.grad.flat().begin(), p.grad.flat().end());
      (p.spec.placement == Placement::kWorld ? mesh.world() : mesh.dp()).all_sum(sum);
      for (const HfSlice& slice : p.spec.slices) {
        const auto begin = sum.begin() + slice.row_begin * p.spec.cols;
        by_name[slice.name].assign(begin, begin + slice.rows * p.spec.cols);
      }
    }
    return by_name;
  }
};

MeshShape shape_of(Index dp, Index ep) {
  MeshShape shape;
  shape.dp = dp;
  shape.ep = ep;
  return shape;
}

/// All meshes of as many ranks as this program runs on, and of the smaller powers of two.
std::vector<MeshShape> all_meshes() {
  std::vector<MeshShape> shapes;
  for (Index world = 1; world <= Communicator::world().size(); world *= 2)
    for (const MeshShape& shape : testing::meshes_for(world, tiny().num_experts)) shapes.push_back(shape);
  return shapes;
}

double relative_gap(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

TEST(Trainer, LossesAndGradientNormsOverTwentyStepsAreThoseOfOneRankOnEveryMesh) {
  for (const bool fused : {true, false}) {
    const std::vector<double> alone = TrainingRun(shape_of(1, 1), {.fused = fused}).losses(20);
    EXPECT_LT(alone[38], 0.8 * alone[0]) << "the model must have learned something for this to be a test";
    for (const MeshShape& shape : all_meshes())
      EXPECT_LE(relative_gap(TrainingRun(shape, {.fused = fused}).losses(20), alone), 1e-5)
          << shape.text() << " fused " << fused;
  }
}

TEST(Trainer, GradientsPerParameterAreThoseOfOneRankOnEveryMesh) {
  const auto alone = TrainingRun(shape_of(1, 1), {}).gradients();
  for (const MeshShape& shape : all_meshes())
    for (const auto& [name, gradient] : TrainingRun(shape, {}).gradients()) {
      const std::vector<double>& expected = alone.at(name);
      double largest = 1e-12;
      double gap = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        gap = std::max(gap, std::abs(gradient[i] - expected[i]));
      }
      EXPECT_LE(gap / largest, 1e-4) << name << " on " << shape.text();
    }
}

TEST(Trainer, HasTheSameBitsAtEveryEpOfTheSameWorld) {
  const Index world = Communicator::world().size();
  if ((world & (world - 1)) != 0)
    GTEST_SKIP() << world << " ranks: a row of ep is no subtree of the one order";
  const std::vector<double> all_dp = TrainingRun(shape_of(world, 1), {}).losses(20);
  for (const MeshShape& shape : testing::meshes_for(world, tiny().num_experts))
    EXPECT_EQ(TrainingRun(shape, {}).losses(20), all_dp) << shape.text();
}

TEST(Trainer, HasTheSameBitsForAnyNumberOfThreads) {
  const MeshShape shape = shape_of(1, Communicator::world().size());
  if (tiny().num_experts % shape.ep != 0) GTEST_SKIP() << "experts do not divide";
  const std::vector<double> one = TrainingRun(shape, {}).losses(4);
  set_threads(3);
  const std::vector<double> three = TrainingRun(shape, {}).losses(4);
  set_threads(1);
  EXPECT_EQ(one, three);
}

TEST(Trainer, AccumulationGivesTheLossesOfTheWholeBatch) {
  TrainingRun whole(shape_of(1, 1), {});
  TrainingRun halves(shape_of(1, 1), {.accumulation = 2});
  const StepReport a = whole.trainer.step(0);
  const StepReport b = halves.trainer.step(0);
  EXPECT_NEAR(a.lm_loss, b.lm_loss, 1e-6 * a.lm_loss);
  // The aux loss is a product of means, so halves differ from the whole by what the halves' balance differs.
  EXPECT_NEAR(a.aux_loss, b.aux_loss, 0.2);
  EXPECT_EQ(a.tokens, b.tokens);
}

TEST(Trainer, CountsEveryRowOfEveryExpert) {
  TrainingRun run(shape_of(1, Communicator::world().size() == 3 ? 1 : Communicator::world().size()), {});
  const StepReport report = run.trainer.step(0);
  ASSERT_EQ(report.rows_per_expert.size(), 3u);
  EXPECT_TRUE(report.rows_per_expert[1].empty()) << "layer 1 is dense";
  Index rows = 0;
  for (const Index r : report.rows_per_expert[0]) rows += r;
  EXPECT_EQ(rows, report.tokens * 2);
}

TEST(Trainer, StopsOnEveryRankAndNamesStepAndLayerWhenTheLossIsNotFinite) {
  TrainingRun run(shape_of(1, 1), {});
  run.store.find("model.layers.1.mlp.down_proj.weight").value(0, 0) = std::numeric_limits<float>::quiet_NaN();
  try {
    run.trainer.step(7);
    FAIL() << "a NaN loss must stop the run";
  } catch (const AgreedError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("step 7"), std::string::npos) << text;
    EXPECT_NE(text.find("layer 1 on rank 0"), std::string::npos) << text;
  }
}

TEST(Trainer, LeavesWeightsAloneWhenItSkipsAStep) {
  TrainingRun run(shape_of(1, 1), {.on_nan = OnNan::kSkip});
  const Parameter& poisoned = run.store.find("model.layers.1.mlp.down_proj.weight");
  const Parameter& other = run.store.find("model.norm.weight");
  poisoned.value(0, 0) = std::numeric_limits<float>::quiet_NaN();
  const StepReport report = run.trainer.step(0);
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(other.value(0, 0), 1.0f);
  poisoned.value(0, 0) = 0;
  run.store.mark_changed();
  EXPECT_FALSE(run.trainer.step(1).skipped);
}

TEST(Trainer, EvaluatesTheSameOnEveryMesh) {
  TrainingRun alone(shape_of(1, 1), {});
  const double expected = alone.trainer.evaluate(alone.sampler.heldout(5, 2, 0));
  for (const MeshShape& shape : all_meshes()) {
    TrainingRun run(shape, {});
    EXPECT_NEAR(run.trainer.evaluate(run.sampler.heldout(5, 2, run.mesh.world().rank())), expected, 1e-6)
        << shape.text();
  }
}

}  // namespace
}  // namespace moeloom
