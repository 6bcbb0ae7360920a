#include "moeloom/plan/kernel_modules.hpp"

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
  config.rope_local_base_freq = 1e4;
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

}  // namespace
}  // namespace moeloom
