#include "plan/kernel_modules.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<KernelReport> all_apply() {
  std::vector<KernelReport> reports;
  const KernelRegistry registry = KernelRegistry::builtin();
  for (const Kernel& kernel : registry.kernels()) reports.push_back({kernel.id, true, "fits"});
  return reports;
}

/// Layers, module and kernel of the rows whose module begins so.
std::vector<std::string> rows_of(const std::vector<ModuleRow>& rows, const std::string& beginning) {
  std::vector<std::string> found;
  for (const ModuleRow& row : rows)
    if (row.module.starts_with(beginning))
      found.push_back(row.layers + ": " + row.module + ": " + row.kernel);
  return found;
}

using Lines = std::vector<std::string>;

ModelConfig mixed_layers() {
  ModelConfig config;
  config.num_hidden_layers = 6;
  config.mlp_only_layers = {0, 4};
  return config;
}

TEST(KernelModules, LayersThatAreAlikeStandInOneRow) {
  const auto rows = kernel_modules(mixed_layers(), all_apply());
  EXPECT_EQ(rows_of(rows, "self_attn.o_proj"), (Lines{"layers 0-5: self_attn.o_proj: tiled_dense"}));
  EXPECT_EQ(rows_of(rows, "mlp.down_proj"), (Lines{"layers 0, 4: mlp.down_proj: tiled_dense"}));
  EXPECT_EQ(rows_of(rows, "mlp.experts"), (Lines{"layers 1-3, 5: mlp.experts: fused_moe",
                                                 "layers 1-3, 5: mlp.experts activation: fused_swiglu"}));
  EXPECT_EQ(rows_of(rows, "mlp.gate"),
            (Lines{"layers 0, 4: mlp.gate_proj, up_proj: tiled_dense", "layers 1-3, 5: mlp.gate: native"}));
  EXPECT_EQ(rows.front().module, "embed_tokens");
  EXPECT_EQ(rows.back().module, "lm_head");
}

TEST(KernelModules, AWindowOrAnotherRopePartsTheAttentionAlone) {
  ModelConfig config;
  config.model_type = "gemma3_text";
  config.hidden_act = "gelu_pytorch_tanh";
  config.num_experts = 0;
  config.windows = {8, 0, 8, 0};
  config.window_rope = WindowRope{.theta = 1e4};
  config.rope_theta = 1e6;
  const auto rows = kernel_modules(config, all_apply());
  EXPECT_EQ(rows_of(rows, "self_attn rotary"),
            (Lines{"layers 0, 2: self_attn rotary embedding: fused_rope",
                   "layers 1, 3: self_attn rotary embedding: fused_rope"}));
  EXPECT_EQ(rows_of(rows, "mlp activation"), (Lines{"layers 0-3: mlp activation: fused_swiglu"}));
  const auto what = [&](const std::string& module) {
    return std::ranges::find(rows, module, &ModuleRow::module)->what;
  };
  EXPECT_EQ(what("mlp activation"), "gelu_pytorch_tanh(gate) * up");
  EXPECT_NE(what("self_attn scores").find("a window of 8 tokens"), std::string::npos);
  EXPECT_NE(what("norm").find("1 + w"), std::string::npos);
}

TEST(KernelModules, WhereAKernelIsLeftOutTheReasonStandsBesideTheModule) {
  std::vector<KernelReport> reports = all_apply();
  for (KernelReport& report : reports) report = {report.id, false, "not asked for"};
  for (const ModuleRow& row : kernel_modules(mixed_layers(), reports)) {
    EXPECT_TRUE(row.kernel == "native" || row.kernel == "reference") << row.module;
    const bool has_none =
        row.module == "embed_tokens" || row.module == "mlp.gate" || row.module == "self_attn scores";
    EXPECT_EQ(row.what.ends_with(": not asked for"), !has_none) << row.module << " " << row.what;
  }
}

TEST(KernelModules, EveryFamilyCallsItsModulesAsItsFilesDo) {
  ModelConfig mixtral;
  mixtral.model_type = "mixtral";
  mixtral.names.block = "block_sparse_moe";
  EXPECT_EQ(rows_of(kernel_modules(mixtral, all_apply()), "block_sparse_moe").size(), 3u);
  ModelConfig phi3;
  phi3.model_type = "phi3";
  phi3.num_experts = 0;
  const auto rows = kernel_modules(phi3, all_apply());
  EXPECT_EQ(rows_of(rows, "self_attn.qkv_proj").size(), 1u);
  EXPECT_EQ(rows_of(rows, "mlp.gate_up_proj").size(), 1u);
  ModelConfig qwen2;
  qwen2.model_type = "qwen2_moe";
  qwen2.shared_expert_intermediate_size = 24;
  EXPECT_EQ(rows_of(kernel_modules(qwen2, all_apply()), "mlp.shared_expert"),
            (Lines{"layers 0-3: mlp.shared_expert_gate: native",
                   "layers 0-3: mlp.shared_expert.gate_proj, up_proj: tiled_dense",
                   "layers 0-3: mlp.shared_expert activation: fused_swiglu",
                   "layers 0-3: mlp.shared_expert.down_proj: tiled_dense"}));
}

TEST(KernelModules, ProjectionsAreThoseThatALayerHas) {
  ModelConfig config;
  config.model_type = "gemma4_text";
  config.hidden_act = "gelu_pytorch_tanh";
  config.windows = {8, 0, 8, 0};
  config.keys_are_values = true;
  config.num_kv_shared_layers = 1;
  const auto rows = kernel_modules(config, all_apply());
  EXPECT_EQ(
      rows_of(rows, "self_attn.q_proj"),
      (Lines{"layers 0, 2: self_attn.q_proj, k_proj, v_proj: tiled_dense",
             "layer 1: self_attn.q_proj, k_proj: tiled_dense", "layer 3: self_attn.q_proj: tiled_dense"}));
  EXPECT_EQ(rows_of(rows, "self_attn values"), (Lines{"layers 0, 2: self_attn values: fused_rmsnorm",
                                                      "layer 1: self_attn values: fused_rmsnorm"}));
  EXPECT_EQ(rows_of(rows, "self_attn.q_norm").back(), "layer 3: self_attn.q_norm: fused_rmsnorm");
}

TEST(KernelModules, AGateOfItsOwnIsAProductOfItsOwn) {
  ModelConfig config;
  config.model_type = "laguna";
  config.gate_per_head = true;
  const auto rows = kernel_modules(config, all_apply());
  EXPECT_EQ(rows_of(rows, "self_attn.g_proj").size(), 1u);
  const auto gate = std::ranges::find(rows, "self_attn output gate", &ModuleRow::module);
  ASSERT_NE(gate, rows.end());
  EXPECT_EQ(gate->what, "context * softplus(gate), a number a head");
}

TEST(KernelModules, LayersWithoutAttentionHaveTheModulesOfTheirMixer) {
  ModelConfig lfm2;
  lfm2.model_type = "lfm2_moe";
  lfm2.attention_layers = {0, 1, 0, 0};
  lfm2.conv_taps = 3;
  EXPECT_EQ(rows_of(kernel_modules(lfm2, all_apply()), "conv."),
            (Lines{"layers 0, 2-3: conv.in_proj: tiled_dense", "layers 0, 2-3: conv.conv: native",
                   "layers 0, 2-3: conv.out_proj: tiled_dense"}));
  lfm2.names.block = "feed_forward";
  lfm2.first_k_dense_replace = 1;
  EXPECT_EQ(rows_of(kernel_modules(lfm2, all_apply()), "self_attn.out_proj"),
            (Lines{"layer 1: self_attn.out_proj: tiled_dense"}));
  EXPECT_EQ(rows_of(kernel_modules(lfm2, all_apply()), "self_attn.q_layernorm").size(), 1u);
  EXPECT_EQ(rows_of(kernel_modules(lfm2, all_apply()), "feed_forward.w"),
            (Lines{"layer 0: feed_forward.w1, w3: tiled_dense", "layer 0: feed_forward.w2: tiled_dense"}));
  ModelConfig next;
  next.model_type = "qwen3_next";
  next.attention_layers = {0, 0, 0, 1};
  next.conv_taps = 4;
  next.linear_num_key_heads = 2;
  next.linear_num_value_heads = 4;
  next.linear_key_head_dim = next.linear_value_head_dim = 8;
  EXPECT_EQ(
      rows_of(kernel_modules(next, all_apply()), "linear_attn"),
      (Lines{"layers 0-2: linear_attn.in_proj_qkvz, in_proj_ba: tiled_dense",
             "layers 0-2: linear_attn.conv1d: native", "layers 0-2: linear_attn gated delta rule: native",
             "layers 0-2: linear_attn.norm: fused_rmsnorm",
             "layers 0-2: linear_attn.out_proj: tiled_dense"}));
  next.model_type = "qwen3_5_moe_text";
  EXPECT_EQ(rows_of(kernel_modules(next, all_apply()), "linear_attn.in_proj"),
            (Lines{"layers 0-2: linear_attn.in_proj_qkv, z, b, a: tiled_dense"}));
}

}  // namespace
}  // namespace moeloom
