// A run of a tiny model on a part of the world: what the tests of the trainer share.
#pragma once

#include "model/freeze.hpp"
#include "model/hf/weights/initialise.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "train/trainer.hpp"
#include "train/training_state.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

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

/// Weights travel for nothing, so that whatever may move does.
constexpr RebalanceRates kFreeWeights{.row_products = 3000, .on_node = {1, 0}, .between_nodes = {2, 0}};

struct TrainingRunSettings {
  Index global_batch = 12;  // divides over 1, 2, 3 and 4 ranks
  Index accumulation = 1;
  bool fused = true;
  bool packed = false;  // grouped products on packed faces
  double aux_loss_coef = 0.01;
  double z_loss_coef = 0.001;
  OnNan on_nan = OnNan::kStop;
  Index experts = tiny_config().num_experts;
  DispatcherKind dispatcher = DispatcherKind::kAlltoall;
  WireSettings wire = {};
  Index sum_nodes = 0;  // sums and weights go as if the world were on so many nodes; 0: as it is
  Index chunks = 0;     // in which rows travel
  std::optional<RebalanceRates> rebalance = {};
  std::set<std::string> frozen = {};  // names of parameters
  TrainerHooks hooks = {};
  std::uint64_t weights_seed = 3;
  Index exact = 0;  // sequences of a leaf of exact sums
  Index check_replicas = 0;
  Index check_steps = 0;
  RoutingSettings routing = {};
  MomentFormat moments = MomentFormat::kFp32;
  std::uint64_t masks_seed = 0;  // of what adapters drop
  Storage masters = Storage::kFp32;
  Storage gradients = Storage::kFp32;  // of experts
  OptimizerKind optimizer_kind = OptimizerKind::kAdamW;
  Recompute recompute = Recompute::kNone;
  bool by_layer = false;              // gradients are reduced as backward leaves a layer
  bool gather_by_layer = false;       // weights are gathered as forward needs them
  bool shard_dense = false;           // that too
  ModelConfig model = tiny_config();  // with so many experts
  /// What is trained on in place of the sampler; the batch's shape is the run's.
  std::function<BatchSource(const BatchSampler&, const BatchShape&, Index world)> batches = {};
};

inline ModelConfig with_experts(ModelConfig config, Index experts) {
  config.num_experts = experts;
  return config;
}

/// Everything a run needs, on a part of the world as large as the shape.
struct TrainingRun {
  TextFile text;
  TokenSource tokens{text.path(), TokenFormat::kText};
  Mesh mesh;
  ModelConfig config;
  DispatcherSettings dispatcher;
  TrainingState state;
  ParameterStore& store = state.store;
  Decoder& decoder = state.decoder;
  ShardedOptimizer& optimizer = state.optimizer;
  BatchShape batch;
  BatchSampler sampler;
  BatchSource batches;
  Trainer trainer;

  TrainingRun(MeshShape shape, TrainingRunSettings settings)
      : mesh(world_of(shape, settings), shape),
        config(with_experts(settings.model, settings.experts)),
        dispatcher(dispatcher_of(settings)),
        state(config, mesh,
              {.kernels = kernel_table(settings.fused, settings.packed),
               .dispatcher = dispatcher,
               .job = job_of(settings, shape),
               .frozen = settings.frozen,
               .routing = settings.routing,
               .dense = settings.shard_dense ? dense_of(settings) : ShardedDense()}),
        batch(job_of(settings, shape).batch),
        sampler(tokens, split_tokens(tokens.size(), 0.1), batch, shape.world(), 17),
        batches(settings.batches ? settings.batches(sampler, batch, shape.world()) : BatchSource(sampler)),
        trainer(decoder, store, mesh, optimizer, batches,
                {.schedule = {.peak = 3e-3, .warmup_steps = 3, .total_steps = 20, .final_fraction = 0.1},
                 .batch = batch,
                 .aux_loss_coef = settings.aux_loss_coef,
                 .z_loss_coef = settings.z_loss_coef,
                 .on_nan = settings.on_nan,
                 .check_replicas = settings.check_replicas,
                 .check_steps = settings.check_steps,
                 .seed = settings.masks_seed,
                 .hooks = settings.hooks}) {
    initialise(store, config, settings.weights_seed);
    store.settle();
  }

  static Communicator world_of(const MeshShape& shape, const TrainingRunSettings& settings) {
    const Communicator all = Communicator::world();
    Communicator world = all.split(all.rank() / static_cast<int>(shape.world()), all.rank());
    if (settings.sum_nodes > 0) world.pretend_nodes(settings.sum_nodes);
    return world;
  }

  ShardedDense dense_of(const TrainingRunSettings& settings) const {
    return sharded_dense(mesh,
                         specs_here(config, mesh, settings.frozen, job_of(settings, mesh.shape()).keeping),
                         false, settings.wire.pretended_nodes);
  }

  DispatcherSettings dispatcher_of(const TrainingRunSettings& settings) const {
    DispatcherSettings made =
        open_dispatcher(settings.dispatcher, mesh.ep(), config.num_experts, settings.wire);
    made.chunks = settings.chunks;
    made.rebalance = settings.rebalance;
    return made;
  }

  static Job job_of(const TrainingRunSettings& settings, const MeshShape& shape) {
    return {.batch = {.sequences = settings.global_batch,
                      .length = 24,
                      .micro_batches = settings.accumulation,
                      .exact = settings.exact},
            .keeping = {.optimizer = settings.optimizer_kind,
                        .moments = settings.moments,
                        .masters = settings.masters,
                        .gradients = settings.gradients,
                        .recompute = settings.recompute},
            .exchange = {.overlap_reduce = settings.by_layer || settings.shard_dense,
                         .overlap_gather = settings.gather_by_layer},
            .layout = {.mesh = shape}};
  }

  std::vector<double> losses(Index steps) {
    std::vector<double> losses;
    for (Index step = 0; step < steps; ++step) {
      const StepReport report = trainer.step(step);
      losses.push_back(report.loss);
      losses.push_back(report.grad_norm);
    }
    trainer.settle();
    return losses;
  }

  /// Gradients of step 0 summed over their ranks, by HF name, of the experts that live here.
  std::map<std::string, std::vector<double>> gradients(double aux_loss_coef) {
    store.restart_gradients();
    const LossScales scales{.lm = 1.0 / static_cast<double>(batches.tokens_of(0).targets),
                            .aux = aux_loss_coef / static_cast<double>(batch.micro_batches)};
    for (Index micro_batch = 0; micro_batch < batch.micro_batches; ++micro_batch)
      decoder.forward_backward(batches.train(0, micro_batch, mesh.world().rank()), scales);
    std::map<std::string, std::vector<double>> by_name;
    for (const Parameter& p : store.parameters()) {
      if (p.spec.frozen) continue;
      std::vector<double> sum(p.grad.flat().begin(), p.grad.flat().end());
      (p.spec.placement == Placement::kWorld ? mesh.world() : mesh.dp()).all_sum(sum);
      for (const HfSlice& slice : p.spec.slices) {
        const auto begin = sum.begin() + slice.row_begin * p.spec.cols;
        by_name[slice.name].assign(begin, begin + slice.rows * p.spec.cols);
      }
    }
    return by_name;
  }

  /// Of the parameters of this rank, by HF name.
  std::map<std::string, std::vector<float>> weights_by_name() const {
    std::map<std::string, std::vector<float>> by_name;
    Matrix memory;
    for (const Parameter& p : store.parameters())
      for (const HfSlice& slice : p.spec.slices) {
        const auto rows = rows_of(p, slice).read(memory).flat();
        by_name[slice.name].assign(rows.begin(), rows.end());
      }
    return by_name;
  }

  std::vector<float> weights() {
    std::vector<float> all;
    Matrix memory;
    for (const Parameter& p : store.parameters()) {
      const auto numbers = p.stored().read(memory).flat();
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    return all;
  }

  bool is_last_rank() const { return mesh.world().rank() == mesh.world().size() - 1; }
};

inline MeshShape shape_of(Index dp, Index ep) {
  MeshShape shape;
  shape.dp = dp;
  shape.ep = ep;
  return shape;
}

/// All meshes of `world` ranks, in both orders of the axes where that makes a difference.
inline std::vector<MeshShape> meshes_of(Index world) {
  std::vector<MeshShape> shapes;
  for (MeshShape shape : meshes_for(world, tiny_config().num_experts)) {
    shapes.push_back(shape);
    shape.order = {"ep", "dp"};
    if (shape.dp > 1 && shape.ep > 1) shapes.push_back(shape);
  }
  return shapes;
}

/// Those of as many ranks as this program runs on, and of every number of ranks that divides it.
inline std::vector<MeshShape> meshes_of_every_size() {
  std::vector<MeshShape> shapes;
  for (Index world = 1; world <= Communicator::world().size(); ++world)
    if (Communicator::world().size() % world == 0)
      for (const MeshShape& shape : meshes_of(world)) shapes.push_back(shape);
  return shapes;
}

struct NamedRun {
  const char* name;
  TrainingRunSettings settings;
};
/// Runs in which experts that compute elsewhere may differ: what is not a plain run of `base`.
inline std::vector<NamedRun> runs_that_may_differ(const TrainingRunSettings& base = {}) {
  std::vector<NamedRun> runs(4, {"", base});
  runs[0].name = "micro-batches, packed faces", runs[0].settings.accumulation = 2;
  runs[0].settings.global_batch = 24, runs[0].settings.packed = true;
  runs[1].name = "five experts", runs[1].settings.experts = 5;
  runs[2].name = "frozen experts";
  runs[2].settings.frozen = {"model.layers.0.mlp.experts.gate_up_proj",
                             "model.layers.2.mlp.experts.down_proj"};
  runs[3].name = "two nodes", runs[3].settings.wire.pretended_nodes = 2;
  runs[3].settings.dispatcher = DispatcherKind::kHierarchical;
  return runs;
}

inline std::string name_of(const MeshShape& shape) {
  return shape.text() + ", " + shape.order.back() + " fastest";
}

inline double relative_gap(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

using Gradients = std::map<std::string, std::vector<double>>;

/// 1e-4 of the parameter's largest element: sums of some hundred floats in another order.
inline void expect_same_gradients(const Gradients& got, const Gradients& expected) {
  for (const auto& [name, gradient] : got) {
    const std::vector<double>& wanted = expected.at(name);
    double largest = 1e-12;
    double gap = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      gap = std::max(gap, std::abs(gradient[i] - wanted[i]));
    }
    EXPECT_LE(gap / largest, 1e-4) << name;
  }
}

/// What must be equal bit for bit.
struct Outcome {
  std::vector<double> losses;  // of steps, and a validation
  std::map<std::string, std::vector<float>> weights;
};

constexpr Index kOutcomeSteps = 5;

inline Outcome outcome_of(MeshShape shape, const TrainingRunSettings& settings) {
  TrainingRun run(std::move(shape), settings);
  Outcome outcome{run.losses(kOutcomeSteps), run.weights_by_name()};
  outcome.losses.push_back(run.trainer.evaluate(run.sampler.heldout(7, 2, run.mesh.world().rank())));
  return outcome;
}

/// The run's experts are some of those of the reference.
inline void expect_same_bits(const Outcome& got, const Outcome& reference) {
  EXPECT_EQ(got.losses, reference.losses);
  for (const auto& [name, values] : got.weights) EXPECT_EQ(values, reference.weights.at(name)) << name;
}

}  // namespace moeloom::testing
