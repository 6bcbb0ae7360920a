// What a step does, says and counts when its loss or its gradient is not finite.
#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "support/expect_error.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// What every rank of the run throws from step 7, checked to be the same everywhere.
std::string reason_for_stopping(TrainingRun& run) {
  const std::string mine = message_of<AgreedError>([&] { run.trainer.step(7); });
  for (const std::string& text : run.mesh.world().all_gather_text(mine)) EXPECT_EQ(text, mine);
  return mine;
}

void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

std::string on_last_rank(const MeshShape& shape) {
  return " on rank " + std::to_string(shape.world() - 1) + ";";
}

/// Rows of the last expert in a parameter of experts; none unless it lives here.
MatrixView rows_of_expert_3(const TrainingRun& run, const std::string& name) {
  const Parameter& p = run.store.find(name);
  const Index rows = p.spec.rows / p.spec.groups;
  const Index local = 3 - p.spec.group_ids.front();
  return p.value.rows_from(local < p.spec.groups ? local * rows : 0, local < p.spec.groups ? rows : 0);
}

void scale(MatrixView values, float factor) {
  for (float& value : values.flat()) value *= factor;
}

/// A loss that is finite, gradients of the router near 1e28: what multiplies them by 1e16 overflows.
const TrainingRunSettings kSteep{.z_loss_coef = 1e30};

/// The forward pass gives what it would without it, but the rows before the down projection are large.
void steepen_expert_3_of_layer_0(TrainingRun& run) {
  scale(rows_of_expert_3(run, "model.layers.0.mlp.experts.gate_up_proj"), 1e8f);
  scale(rows_of_expert_3(run, "model.layers.0.mlp.experts.down_proj"), 1e-16f);
}

/// The same of attention, in this rank's own copy: what its tokens alone meet.
void steepen_attention_of_layer_2(TrainingRun& run) {
  const Parameter& qkv = run.store.find("model.layers.2.self_attn.qkv_proj.weight");
  const HfSlice& v = qkv.spec.slices[2];
  scale(qkv.value.rows_from(v.row_begin, v.rows), 1e16f);
  scale(run.store.find("model.layers.2.self_attn.o_proj.weight").value, 1e-16f);
}

TEST(TrainerNotFinite, NamesTheExpertAndItsRankWhereAGradientOverflows) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size()))
    for (const auto& [by_layer, shard_dense] : {std::pair(false, false), {true, false}, {true, true}}) {
      if (shape.dp > 1) continue;
      SCOPED_TRACE(name_of(shape) + (shard_dense ? ", sharded" : by_layer ? ", by layer" : ""));
      TrainingRunSettings settings = kSteep;
      settings.by_layer = by_layer, settings.shard_dense = shard_dense;
      TrainingRun run(shape, settings);
      steepen_expert_3_of_layer_0(run);
      expect_parts(reason_for_stopping(run), {"step 7: the gradient is not finite; first in that of "
                                              "model.layers.0.mlp.experts.down_proj, expert 3" +
                                                  on_last_rank(shape),
                                              "lower the learning rate", "on nan = skip"});
    }
}

TEST(TrainerNotFinite, NamesAShardedDenseGradient) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    TrainingRunSettings settings = kSteep;
    settings.shard_dense = true;
    TrainingRun run(shape, settings);
    steepen_expert_3_of_layer_0(run);
    run.store.settle();
    const Parameter& qkv = run.store.find("model.layers.2.self_attn.qkv_proj.weight");
    if (qkv.is_filled_here)
      scale(qkv.value.rows_from(qkv.spec.slices[2].row_begin, qkv.spec.slices[2].rows), 1e16f);
    const Parameter& o = run.store.find("model.layers.2.self_attn.o_proj.weight");
    if (o.is_filled_here) scale(o.value, 1e-16f);
    run.store.settle();
    expect_parts(reason_for_stopping(run),
                 {"first in that of model.layers.2.self_attn.o_proj.weight on rank"});
  }
}

TEST(TrainerNotFinite, NamesTheLastLayerAndTheRankWhoseTokensMadeAGradientOverflow) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    TrainingRun run(shape, kSteep);
    steepen_expert_3_of_layer_0(run);
    if (run.is_last_rank()) steepen_attention_of_layer_2(run);
    expect_parts(reason_for_stopping(run),
                 {"first in that of model.layers.2.self_attn.o_proj.weight" + on_last_rank(shape)});
  }
}

TEST(TrainerNotFinite, NamesTheLayerAndTheWeightWhereALossIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    TrainingRun of_expert(shape, {});
    const MatrixView down = rows_of_expert_3(of_expert, "model.layers.2.mlp.experts.down_proj");
    if (down.rows > 0) *down.row(0) = nan;
    const std::string text = reason_for_stopping(of_expert);
    expect_parts(text, {"step 7: the loss is not finite; first in the output of layer 2 on rank",
                        "the weight model.layers.2.mlp.experts.down_proj, expert 3 on rank"});
    if (shape.dp == 1) expect_parts(text, {"expert 3" + on_last_rank(shape).substr(0, 10)});

    TrainingRun of_one_rank(shape, {});
    if (of_one_rank.is_last_rank())
      of_one_rank.store.find("model.layers.1.mlp.down_proj.weight").value(0, 0) = nan;
    expect_parts(reason_for_stopping(of_one_rank),
                 {"first in the output of layer 1" + on_last_rank(shape),
                  "the weight model.layers.1.mlp.down_proj.weight on rank " +
                      std::to_string(shape.world() - 1) + " is not finite itself"});
  }
}

TEST(TrainerNotFinite, LeavesWeightsOfEveryRankAloneWhenItSkipsAStep) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size()))
    for (const bool of_gradient : {false, true}) {
      SCOPED_TRACE(name_of(shape) + (of_gradient ? ", gradient" : ", loss"));
      TrainingRunSettings settings = of_gradient ? kSteep : TrainingRunSettings();
      settings.on_nan = OnNan::kSkip;
      TrainingRun run(shape, settings);
      const std::vector<float> healthy = run.weights();
      if (of_gradient)
        steepen_expert_3_of_layer_0(run);
      else if (run.is_last_rank())
        run.store.find("model.norm.weight").value(0, 0) = std::numeric_limits<float>::infinity();
      const std::vector<float> before = run.weights();
      const StepReport report = run.trainer.step(0);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(std::isfinite(report.loss), of_gradient);
      EXPECT_EQ(run.weights(), before);
      if (of_gradient) continue;
      std::size_t i = 0;
      for (const Placement placement : kPlacements)
        for (float& value : run.store.values(placement)) value = healthy[i++];
      run.store.mark_changed();
      EXPECT_FALSE(run.trainer.step(1).skipped);
    }
}

std::set<std::int32_t> tokens_of(const TrainingRun& run, Index step, Index micro_batch) {
  std::set<std::int32_t> tokens;
  for (Index rank = 0; rank < run.mesh.world().size(); ++rank) {
    const Batch batch = run.sampler.train(step, micro_batch, rank);
    tokens.insert(batch.input_ids.begin(), batch.input_ids.end());
  }
  return tokens;
}

/// A token that the second micro-batch of the step has and the first has not.
std::optional<std::int32_t> latecomer(const TrainingRun& run, Index step) {
  const std::set<std::int32_t> first = tokens_of(run, step, 0);
  for (const std::int32_t token : tokens_of(run, step, 1))
    if (!first.contains(token)) return token;
  return std::nullopt;
}

TEST(TrainerNotFinite, CountsTheRowsOfTheWholeWorldAlsoWhenALaterMicroBatchIsSkipped) {
  const MeshShape shape = shape_of(Communicator::world().size(), 1);
  TrainingRun run(shape, {.global_batch = 24, .accumulation = 2, .on_nan = OnNan::kSkip});
  Index step = 0;
  while (!latecomer(run, step)) ++step;
  run.store.find("model.embed_tokens.weight").value(*latecomer(run, step), 0) =
      std::numeric_limits<float>::quiet_NaN();
  const StepReport report = run.trainer.step(step);
  EXPECT_TRUE(report.skipped);
  for (const std::size_t layer : {0, 2}) {
    Index rows = 0;
    for (const Index r : report.rows_per_expert.at(layer)) rows += r;
    EXPECT_EQ(rows, report.tokens * 2) << "layer " << layer;
    std::vector<std::int64_t> sum = report.rows_per_expert[layer];
    run.mesh.world().all_sum(sum);
    for (std::size_t e = 0; e < sum.size(); ++e)
      EXPECT_EQ(sum[e], report.rows_per_expert[layer][e] * shape.world()) << "the same on every rank";
  }
}

}  // namespace
}  // namespace moeloom
