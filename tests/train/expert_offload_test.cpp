// Frozen experts that lie on a disk: what a rank has of them in its memory while it trains and when it asks.
#include "io/disk_memory.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/initialise.hpp"
#include "train/step_checks.hpp"
#include "train/training_state.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "support/files.hpp"
#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TemporaryFolder;

constexpr Index kLayers = 6;
constexpr Index kLayerBytes = Index{2} * 4 * 3 * 64 * 256;

/// Of attention alone, beside six layers of four experts in bf16.
ModelConfig adapted_config() {
  ModelConfig config = testing::tiny_config();
  config.num_hidden_layers = kLayers;
  config.num_experts = 4;
  config.hidden_size = 64;
  config.moe_intermediate_size = 256;
  config.decoder_sparse_step = 1;
  config.mlp_only_layers = {};
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"attention"}});
  config.adapter->base_stored = Storage::kBf16;
  return config;
}

/// Bytes that this process holds of the mapping in which an address lies.
Index held_of_mapping(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-');
    if (dash != std::string::npos && line.find(' ') > dash && line.find(':') > dash) {
      std::uintptr_t begin = 0, end = 0;
      std::from_chars(line.data(), line.data() + dash, begin, 16);
      std::from_chars(line.data() + dash + 1, line.data() + line.find(' '), end, 16);
      const auto wanted = reinterpret_cast<std::uintptr_t>(address);
      inside = wanted >= begin && wanted < end;
    }
    if (inside && line.starts_with("Rss:")) return 1024 * std::stoll(line.substr(4));
  }
  return -1;
}

struct OffloadedModel {
  TemporaryFolder folder;
  Mesh mesh{Communicator::world().split(Communicator::world().rank(), 0), {.dp = 1, .ep = 1}};
  ModelConfig config = adapted_config();
  std::unique_ptr<TrainingState> state = make_training_state(
      config, mesh, {.kernels = testing::kernel_table(true), .job = {.keeping = {.offload = folder.path()}}});
  const void* experts = state->store.find("model.layers.0.mlp.experts.gate_up_proj").halves.data;

  Index held() const { return held_of_mapping(experts); }
};

Batch some_tokens() {
  Batch batch;
  batch.sequences = 2;
  batch.sequence_length = 16;
  for (std::int32_t i = 0; i < 32; ++i) {
    batch.input_ids.push_back(i % 13);
    batch.targets.push_back(i % 7);
  }
  return batch;
}

TEST(ExpertOffload, HoldsTwoLayersAtMostAndNoneWhereNothingRuns) {
  OffloadedModel model;
  Decoder& decoder = model.state->decoder;
  const ParameterStore& store = model.state->store;
  ASSERT_EQ(ParameterStore::disk_bytes(specs_here(model.config, model.mesh)), kLayers * kLayerBytes);
  initialise(model.state->store, model.config, 1);
  EXPECT_EQ(model.held(), 0) << "initialised";
  Index most = 0;
  decoder.clock().on_enter([&] { most = std::max(most, model.held()); });
  const Batch batch = some_tokens();
  decoder.evaluate(batch);
  EXPECT_EQ(model.held(), 0) << "evaluated";
  decoder.token_losses(batch);
  EXPECT_EQ(model.held(), 0) << "scored";
  decoder.logits(batch);
  EXPECT_EQ(model.held(), 0) << "asked";
  decoder.count_chosen(batch);
  EXPECT_EQ(model.held(), 0) << "counted";
  decoder.start_sequence(16);
  decoder.next_logits(std::vector<std::int32_t>{3, 4, 5});
  EXPECT_EQ(model.held(), 0) << "begun to write";
  held_hashes(store, model.state->optimizer);
  EXPECT_EQ(model.held(), 0) << "compared";
  EXPECT_GT(most, kLayerBytes / 2) << "something was read";
  decoder.forward_backward(batch, {.lm = 1.0 / 32});
  EXPECT_LE(model.held(), kLayerBytes + (64 << 10)) << "the first layer, with which the next forward begins";
  EXPECT_GT(model.held(), 0);
  EXPECT_LE(most, 2 * kLayerBytes + (64 << 10)) << "with what a fault brings besides";
}

}  // namespace
}  // namespace moeloom
