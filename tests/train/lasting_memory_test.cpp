#include "train/lasting_memory.hpp"

#include "model/hf/parameters/parameter_specs.hpp"

#include <map>
#include <ranges>

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::tiny_config;

Job dp_by_ep(Index dp, Index ep, const Keeping& keeping = {}, Index ranks_per_node = 1) {
  return {.keeping = keeping, .layout = {.mesh = {.dp = dp, .ep = ep}, .ranks_per_node = ranks_per_node}};
}

TEST(LastingMemory, FollowsThePlacement) {
  ModelConfig config = tiny_config();
  const auto specs = parameter_specs(config, experts_of(config.num_experts, 2, 0));
  const LastingMemory need = lasting_memory(specs, dp_by_ep(2, 2));
  const double experts = 4.0 * 2 * 2 * 3 * 24 * 20;  // 2 sparse layers, 2 experts here
  EXPECT_DOUBLE_EQ(need.expert_weights, experts);
  EXPECT_DOUBLE_EQ(need.expert_gradients, experts);
  const double all = 4.0 * static_cast<double>(config.total_parameters());
  EXPECT_DOUBLE_EQ(need.dense_weights, all - 2 * experts);
  EXPECT_DOUBLE_EQ(need.moments, 2 * (need.dense_weights / 4 + experts / 2));
  EXPECT_DOUBLE_EQ(need.lasting(), 2 * (need.dense_weights + experts) + need.moments);
}

TEST(LastingMemory, MomentsTakeTheBytesOfTheirFormat) {
  const auto specs = parameter_specs(tiny_config(), {0, tiny_config().num_experts});
  const auto moments = [&](MomentFormat format) {
    return lasting_memory(specs, dp_by_ep(1, 1, {.moments = format})).moments;
  };
  const double numbers = 2 * static_cast<double>(tiny_config().total_parameters());
  EXPECT_DOUBLE_EQ(moments(MomentFormat::kFp32), 4 * numbers);
  EXPECT_DOUBLE_EQ(moments(MomentFormat::kBf16), 2 * numbers);
  EXPECT_DOUBLE_EQ(moments(MomentFormat::kInt8), 260.0 / 256 * numbers);
}

TEST(LastingMemory, WhatIsFrozenHasNeitherGradientNorMoments) {
  ModelConfig config = tiny_config();
  auto specs = parameter_specs(config, {0, config.num_experts});
  const LastingMemory whole = lasting_memory(specs, dp_by_ep(1, 1));
  for (ParameterSpec& spec : specs) spec.frozen = spec.placement == Placement::kExperts;
  const LastingMemory part = lasting_memory(specs, dp_by_ep(1, 1));
  EXPECT_EQ(part.expert_weights, whole.expert_weights);
  EXPECT_EQ(part.expert_gradients, 0);
  EXPECT_EQ(part.moments, 2 * whole.dense_weights);
}

TEST(LastingMemory, OfShardedDenseParametersCountsTheNodesWeightsOnceAndTheGradientsOfTwoParts) {
  const auto specs = parameter_specs(tiny_config(), {0, tiny_config().num_experts});
  const LastingMemory whole = lasting_memory(specs, dp_by_ep(4, 1));
  const LastingMemory sharded = lasting_memory(specs, dp_by_ep(4, 1, {.shard_dense = true}, 2));
  EXPECT_DOUBLE_EQ(sharded.dense_weights, whole.dense_weights / 2);
  EXPECT_EQ(sharded.moments, whole.moments);
  EXPECT_EQ(sharded.expert_gradients, whole.expert_gradients);
  std::map<Index, double> parts;
  for (const ParameterSpec& spec : specs)
    if (spec.placement == Placement::kWorld)
      parts[part_of_backward(spec)] += 4.0 * static_cast<double>(spec.rows * spec.cols);
  const double largest = std::ranges::max(std::views::values(parts));
  EXPECT_GE(sharded.dense_gradients, whole.dense_gradients / 4 + largest);
  EXPECT_LE(sharded.dense_gradients, whole.dense_gradients / 4 + 2 * largest);
  EXPECT_EQ(lasting_memory(specs, dp_by_ep(1, 1, {.shard_dense = true})).dense_gradients,
            lasting_memory(specs, dp_by_ep(1, 1)).dense_gradients);
}

TEST(LastingMemory, OfExpertsOnADiskCountsTwoLayers) {
  ModelConfig config = tiny_config();
  auto specs = parameter_specs(config, {0, config.num_experts});
  for (ParameterSpec& spec : specs) spec.frozen = spec.placement == Placement::kExperts;
  const auto in_f16 = with_storage(specs, Storage::kFp32, Storage::kF16);
  const auto resting = with_storage(std::move(specs), Storage::kFp32, Storage::kBf16);
  const LastingMemory in_memory = lasting_memory(resting, dp_by_ep(1, 1));
  for (const bool offload : {false, true})
    EXPECT_EQ(lasting_memory(in_f16, dp_by_ep(1, 1, {.offload = offload ? "DIR" : ""})).expert_weights,
              lasting_memory(resting, dp_by_ep(1, 1, {.offload = offload ? "DIR" : ""})).expert_weights);
  const LastingMemory on_disk = lasting_memory(resting, dp_by_ep(1, 1, {.offload = "DIR"}));
  EXPECT_EQ(on_disk.dense_weights, in_memory.dense_weights);
  EXPECT_DOUBLE_EQ(on_disk.expert_weights, in_memory.expert_weights) << "the model has two sparse layers";
  config.num_hidden_layers *= 4;
  auto deeper = parameter_specs(config, {0, config.num_experts});
  for (ParameterSpec& spec : deeper) spec.frozen = spec.placement == Placement::kExperts;
  EXPECT_DOUBLE_EQ(lasting_memory(with_storage(std::move(deeper), Storage::kFp32, Storage::kBf16),
                                  dp_by_ep(1, 1, {.offload = "DIR"}))
                       .expert_weights,
                   on_disk.expert_weights);
}

TEST(LastingMemory, OfANodeCountsFrozenHalvesOfAllRanksOnce) {
  auto specs = parameter_specs(tiny_config(), {0, tiny_config().num_experts});
  for (ParameterSpec& spec : specs) spec.frozen = true;
  const auto rest = with_storage(std::move(specs), Storage::kFp32, Storage::kBf16);
  const auto dense = [&](Index sharers) {
    return lasting_memory(rest, dp_by_ep(4, 1, {}, sharers)).dense_weights;
  };
  double once = 0;
  for (const ParameterSpec& spec : rest)
    if (spec.placement == Placement::kWorld && spec.stored == Storage::kBf16)
      once += 2.0 * static_cast<double>(spec.rows * spec.cols);
  EXPECT_GT(once, 0);
  EXPECT_DOUBLE_EQ(dense(1) - dense(4), once * 3 / 4);
}

}  // namespace
}  // namespace moeloom
