#include "moeloom/kernels/registry.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

KernelContext fitting() {
  KernelContext context;
  context.model_type = "qwen3_moe";
  context.gmm = {true, "predicted faster"};
  return context;
}

/// The ids whose functions the table holds, in order; the table starts with the references.
std::string applied_in(const KernelTable& table) {
  std::string ids;
  const auto note = [&](bool applied, const char* id) { ids += applied ? std::string(id) + " " : ""; };
  note(table.grouped_matmul.forward == packed_grouped_matmul().forward, "fused_moe");
  note(table.rmsnorm.forward == fused_rmsnorm().forward, "fused_rmsnorm");
  note(table.rope.forward == fused_rope().forward, "fused_rope");
  note(table.swiglu.forward == fused_swiglu().forward, "fused_swiglu");
  note(table.dense.forward == tiled_dense().forward, "tiled_dense");
  return ids;
}

std::string applied_by(const std::string& request, const KernelContext& context) {
  KernelTable table;
  KernelRegistry::builtin().apply_all(request, table, context);
  return applied_in(table);
}

std::string text_of(const std::vector<KernelReport>& reports) {
  std::string text;
  for (const KernelReport& r : reports) text += r.id + (r.applied ? " yes: " : " no: ") + r.reason + "\n";
  return text;
}

/// What apply_all throws; "" if it does not. The table must be left alone.
std::string error_of(const std::string& request, const KernelContext& context) {
  KernelTable table;
  try {
    KernelRegistry::builtin().apply_all(request, table, context);
  } catch (const ConfigError& error) {
    EXPECT_EQ(applied_in(table), "") << "a kernel was applied before all were checked";
    return error.what();
  }
  return "";
}

TEST(KernelRegistry, AppliesWhatIsAskedFor) {
  const std::string all = "fused_moe fused_rmsnorm fused_rope fused_swiglu tiled_dense ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"auto", all},
      {" AUTO ", all},
      {"true", all},
      {"1", all},
      {"none", ""},
      {"None", ""},
      {"false", ""},
      {"0", ""},
      {"", ""},
      {"  ", ""},
      {"fused_rope", "fused_rope "},
      {" fused_swiglu ,fused_rope", "fused_rope fused_swiglu "},
      {"npu_fused_moe,npu_fused_rmsnorm", "fused_moe fused_rmsnorm "},
      {"npu_fused_rope, npu_fused_swiglu, fused_rope", "fused_rope fused_swiglu "},
  };
  for (const auto& [request, applied] : cases) EXPECT_EQ(applied_by(request, fitting()), applied) << request;
}

TEST(KernelRegistry, ReportsEveryKernelWithAReason) {
  KernelTable table;
  const KernelRegistry registry = KernelRegistry::builtin();
  EXPECT_EQ(text_of(registry.apply_all("auto", table, fitting())),
            "fused_moe yes: predicted faster\n"
            "fused_rmsnorm yes: fits: qwen3_moe, silu\n"
            "fused_rope yes: fits: qwen3_moe, silu\n"
            "fused_swiglu yes: fits: qwen3_moe, silu\n"
            "tiled_dense yes: fits: qwen3_moe, silu\n");
  EXPECT_EQ(text_of(registry.apply_all("fused_rope", table, fitting())),
            "fused_moe no: not asked for\n"
            "fused_rmsnorm no: not asked for\n"
            "fused_rope yes: fits: qwen3_moe, silu\n"
            "fused_swiglu no: not asked for\n"
            "tiled_dense no: not asked for\n");
}

TEST(KernelRegistry, SkipsUnderAutoWhatCannotRunAndSaysWhy) {
  KernelContext context = fitting();
  context.gmm = {false, "ep = 1: this rank holds every expert"};
  context.hidden_act = "relu";
  KernelTable table;
  EXPECT_EQ(
      text_of(KernelRegistry::builtin().apply_all("auto", table, context)),
      "fused_moe no: ep = 1: this rank holds every expert\n"
      "fused_rmsnorm yes: fits: qwen3_moe, relu\n"
      "fused_rope yes: fits: qwen3_moe, relu\n"
      "fused_swiglu no: hidden_act is \"relu\", and it knows silu, swish, gelu_pytorch_tanh, gelu_new and "
      "gelu\n"
      "tiled_dense yes: fits: qwen3_moe, relu\n");
  EXPECT_EQ(applied_in(table), "fused_rmsnorm fused_rope tiled_dense ");

  context = fitting();
  context.hidden_act = "gelu_pytorch_tanh";
  EXPECT_TRUE(KernelRegistry::builtin().apply("fused_swiglu", table, context).applied);

  context = fitting();
  context.has_experts = false;
  context.fused_ops_enabled = false;
  EXPECT_EQ(text_of(KernelRegistry::builtin().apply_all("auto", table, context)),
            "fused_moe no: this model has no experts\n"
            "fused_rmsnorm no: fused ops are off\n"
            "fused_rope no: fused ops are off\n"
            "fused_swiglu no: fused ops are off\n"
            "tiled_dense no: fused ops are off\n");
}

TEST(KernelRegistry, TilesDenseProductsFromEightRowsOn) {
  KernelContext context = fitting();
  for (const Index rows : {Index{1}, Index{7}, Index{8}}) {
    context.rows = rows;
    KernelTable table;
    KernelRegistry::builtin().apply_all("auto", table, context);
    EXPECT_EQ(table.dense.forward == tiled_dense().forward, rows >= 8) << rows;
  }
}

TEST(KernelRegistry, LeavesAModelItDoesNotKnowUnchanged) {
  KernelContext context = fitting();
  context.model_type = "gemma9";
  context.known_model_type = false;
  EXPECT_EQ(applied_by("auto", context), "");
  EXPECT_NE(error_of("fused_rope", context).find("model type \"gemma9\" is not one this kernel knows"),
            std::string::npos);
}

TEST(KernelRegistry, ListsEveryProblemAndAppliesNothing) {
  KernelContext context = fitting();
  context.gmm = {false, "the loop is faster"};
  EXPECT_EQ(
      error_of("fused_rope, fused_mlp,npu_fused_moe,,fused_moe", context),
      "unknown kernel \"fused_mlp\"; known: fused_moe, fused_rmsnorm, fused_rope, fused_swiglu, tiled_dense\n"
      "unknown kernel \"\"; known: fused_moe, fused_rmsnorm, fused_rope, fused_swiglu, tiled_dense\n"
      "kernel fused_moe was asked for by name and cannot run here: the loop is faster");
}

TEST(KernelRegistry, SaysWhichKernelsARequestNames) {
  const KernelRegistry registry = KernelRegistry::builtin();
  for (const char* word : {"auto", " AUTO", "true", "1", "none", "False", "0", ""})
    EXPECT_TRUE(registry.named(word).empty()) << word;
  EXPECT_EQ(registry.named("npu_fused_moe, fused_moe,fused_rope"),
            (std::set<std::string>{"fused_moe", "fused_rope"}));
  EXPECT_THROW(registry.named("auto,fused_mlp"), ConfigError);
}

TEST(KernelRegistry, AppliesOneByNameOrThrowsWithTheReason) {
  const KernelRegistry registry = KernelRegistry::builtin();
  KernelTable table;
  const KernelReport report = registry.apply("npu_fused_rope", table, fitting());
  EXPECT_EQ(report.id, "fused_rope");
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(applied_in(table), "fused_rope ");

  KernelContext context = fitting();
  context.fused_ops_enabled = false;
  EXPECT_THROW(registry.apply("fused_rmsnorm", table, context), ConfigError);
  EXPECT_THROW(registry.apply("fused_mlp", table, fitting()), ConfigError);
  EXPECT_EQ(applied_in(table), "fused_rope ");
}

TEST(KernelRegistry, TakesKernelsOfOthersInOrderAndRefusesTakenNames) {
  KernelRegistry registry = KernelRegistry::builtin();
  const auto fits = [](const KernelContext&) -> std::optional<std::string> { return std::nullopt; };
  registry.add({"custom", {"mine"}, "nothing", fits, [](KernelTable&) {}});
  EXPECT_EQ(registry.kernels().front().id, "custom");
  EXPECT_EQ(registry.find("mine").id, "custom");
  EXPECT_THROW(registry.add({"mine", {}, "an alias as id", fits, [](KernelTable&) {}}), ConfigError);
  EXPECT_THROW(registry.add({"other", {"fused_moe"}, "an id as alias", fits, [](KernelTable&) {}}),
               ConfigError);
  EXPECT_EQ(registry.kernels().size(), 6u);
}

TEST(KernelTable, IsUndoneByAssigningTheOldOne) {
  KernelTable table;
  const KernelTable before = table;
  KernelRegistry::builtin().apply_all("auto", table, fitting());
  table = before;
  EXPECT_EQ(applied_in(table), "");
}

}  // namespace
}  // namespace moeloom
