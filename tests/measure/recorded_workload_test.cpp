#include "measure/recorded_workload.hpp"

#include "measure/layer_subject.hpp"
#include "measure/step_subject.hpp"
#include "measure/sweep/points.hpp"
#include "measure/workload.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/comm/communicator.hpp"

#include <stdexcept>

#include "support/expect_error.hpp"
#include "support/shared_folder.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::SharedFolder;

constexpr Index kTokens = 10, kRecordedSteps = 3;

/// Token t of layer l in step s has experts (t + l + s) mod 8 and the next but two.
std::int32_t expert_of(Index step, Index layer, Index token, Index k) {
  return static_cast<std::int32_t>((token + layer + step + 3 * k) % 8);
}

/// Of layers 1 and 4, steps 20, 21, 22; written by rank 0. Collective.
class Recording {
 public:
  explicit Recording(bool with_empty_slot = false) : folder_(world_) {
    agree(world_, [&] {
      if (world_.rank() == 0) write(with_empty_slot);
    });
  }
  const Communicator& world() const { return world_; }
  std::string name(const std::string& layer = "") const {
    return "trace:" + (folder_.path() / "a@2.routing").string() + layer;
  }

 private:
  void write(bool with_empty_slot) {
    RoutingFileWriter writer(
        folder_.path() / "a@2.routing",
        {.layers = {1, 4}, .experts = 8, .top_k = 2, .sequence_length = 5, .tokens = kTokens}, 20,
        20 + kRecordedSteps);
    for (Index step = 0; step < kRecordedSteps; ++step) {
      writer.begin_step(20 + step);
      for (Index layer = 0; layer < 2; ++layer) {
        RecordedRouting routing;
        for (Index slot = 0; slot < kTokens * 2; ++slot)
          routing.topk_idx.push_back(expert_of(step, layer, slot / 2, slot % 2));
        routing.topk_weights.assign(at(kTokens * 2), 0.5f);
        if (with_empty_slot) routing.topk_idx[3] = -1;
        writer.add_layer(routing);
      }
      writer.end_step(1);
    }
  }

  Communicator world_ = Communicator::world();
  SharedFolder folder_;
};

/// What step `step` should be for tokens of a layer taken one after the other.
std::vector<std::int32_t> expected(Index layer, Index first, Index count) {
  std::vector<std::int32_t> topk_idx;
  for (Index i = first; i < first + count; ++i) {
    const Index token = i % (kTokens * kRecordedSteps);
    for (Index k = 0; k < 2; ++k) topk_idx.push_back(expert_of(token / kTokens, layer, token % kTokens, k));
  }
  return topk_idx;
}

TEST(RecordedWorkload, TakesLayersInTurnAndOfEachTheTokensThatNoStepTook) {
  const Recording recording;
  const RecordedWorkload all(recording.name()), one(recording.name("@4"));
  for (const Index tokens : {10, 7, 64, 1}) {
    const WorkloadShape shape{tokens, 8, 2};
    for (Index step = 0; step < 9; ++step) {
      EXPECT_EQ(all.choose_experts(shape, step, {0, tokens}), expected(step % 2, step / 2 * tokens, tokens))
          << tokens << " tokens, step " << step;
      EXPECT_EQ(one.choose_experts(shape, step, {0, tokens}), expected(1, step * tokens, tokens));
    }
  }
}

TEST(RecordedWorkload, RanksTogetherHaveTheGlobalChoices) {
  const Recording recording;
  const Workload workload = workload_named(recording.name());
  EXPECT_EQ(name_of(workload), recording.name());
  const WorkloadShape shape{23, 8, 2};
  for (const Index ranks : {1, 2, 5, 30}) {
    std::vector<std::int32_t> together;
    for (Index rank = 0; rank < ranks; ++rank) {
      const auto mine =
          choose_experts(workload, shape, 0, 3, tokens_of_rank(workload, shape.tokens, ranks, rank));
      together.insert(together.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(together, choose_experts(workload, shape, 0, 3, {0, shape.tokens})) << ranks;
  }
}

TEST(RecordedWorkload, CountsTheRowsOfEachExpertByStepAndLayer) {
  const Recording recording;
  const RecordedWorkload all(recording.name());
  ASSERT_EQ(all.expert_rows().size(), 6u);
  std::vector<Index> rows(8);
  for (const std::int32_t expert : expected(1, 0, kTokens)) ++rows[at(expert)];
  EXPECT_EQ(all.expert_rows()[1], rows) << "layer 4 of step 20";
  EXPECT_EQ(RecordedWorkload(recording.name("@4")).expert_rows().front(), rows);
}

TEST(RecordedWorkload, RefusesOtherSizesUnknownLayersAndSlotsWithoutExpert) {
  const Recording recording;
  const Workload workload = workload_named(recording.name());
  EXPECT_EQ(why_not(workload, {999, 8, 2}), std::nullopt);
  EXPECT_NE(
      why_not(workload, {10, 16, 2})->find("top-k = 2 of 8 experts, and the benchmark has top-k = 2 of 16"),
      std::string::npos);
  EXPECT_NE(why_not(workload, {10, 8, 1}), std::nullopt);
  EXPECT_THROW(choose_experts(workload, {10, 16, 2}, 0, 0, {0, 10}), ShapeError);
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              workload_named(recording.name("@2"));
            }).find("has no layer 2; its sparse layers: 1, 4"),
            std::string::npos);
  EXPECT_THROW(workload_named("trace:/nowhere"), IoError);
  EXPECT_THROW(workload_named("trace:"), IoError);
  const Recording with_empty_slot(true);
  EXPECT_NE(why_not(workload_named(with_empty_slot.name()), {10, 8, 2})->find("6 slots without an expert"),
            std::string::npos);
}

TEST(RecordedWorkload, IsWhatALayersRouterThenChooses) {
  const Recording recording;
  constexpr LayerSizes kSizes{.hidden = 16, .inter = 8, .experts = 8, .top_k = 2};
  const Mesh mesh(Communicator::world(), MeshShape{0, 1});
  const Workload workload = workload_named(recording.name());
  LayerInputs inputs(kSizes, workload, 20, mesh.world(), 3);
  LayerSubject subject(kSizes, mesh, {}, {}, 3);
  inputs.prepare(2);
  const double load = subject.step(inputs).expert_load;
  EXPECT_DOUBLE_EQ(load, max_over_mean(rows_per_expert(workload, {20, 8, 2}, 0, 2)));
  LayerCheck check(kSizes, mesh, inputs, 3);
  EXPECT_LE(check.error_of(subject, inputs), LayerCheck::tolerance(DType::kF32));
}

TEST(RecordedWorkload, IsGivenToEverySparseLayerOfATrainingStep) {
  const Recording recording;
  ModelConfig model;
  model.hidden_size = 16;
  model.moe_intermediate_size = 8;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.head_dim = 8;
  model.num_experts = 8;
  model.num_experts_per_tok = 2;
  const Mesh mesh(Communicator::world(), MeshShape{0, Communicator::world().size()});
  const TokenSource text = random_text(1, 4096);
  const Workload workload = workload_named(recording.name());
  const TrainingCase of{model, 4, 5, 1, workload};
  StepSubject subject(of, mesh, text, {});
  for (Index step = 0; step < 4; ++step) {
    const StepReport report = subject.train();
    for (const Index layer : {0, 1})
      EXPECT_EQ(report.rows_per_expert[at(layer)], rows_per_expert(workload, {20, 8, 2}, 0, step * 2 + layer))
          << "step " << step << ", layer " << layer;
  }
}

TEST(RecordedWorkload, IsAGroupOfItsOwnOfTrainingStepsWhichElseRouteByThemselves) {
  const Recording recording;
  SweepSettings settings;
  settings.modes = {BenchMode::kStep};
  settings.scalings = {Scaling::kWeak};
  settings.workloads = {Workload::kHot, workload_named(recording.name())};
  const std::vector<EpGroup> groups = groups_of(settings, 8, 2);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(routing_of(groups[0].front()), "natural");
  EXPECT_EQ(routing_of(groups[1].front()), recording.name());
  EXPECT_NE(text_of(groups[0].front()), text_of(groups[1].front()));
}

}  // namespace
}  // namespace moeloom
