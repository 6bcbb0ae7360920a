// Every golden model as a stranger meets it: looked at, trained, written back, resumed, asked, converted.
#include "io/safetensors_shards.hpp"
#include "model/hf/family.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <fstream>
#include <regex>

#include "program/command_line.hpp"
#include "support/files.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using testing::Outcome;

struct Model {
  fs::path folder;
  ModelConfig config;
};

/// Those of families that run; what else stands in the folder is another program's.
std::vector<Model> models() {
  std::vector<Model> found;
  const auto runs = [](const fs::path& folder) {
    const Family* family = find_family(Document::read(folder / "config.json").text("model_type"));
    return family != nullptr && family->refusal.empty();
  };
  for (const fs::path& folder : testing::golden_cases("models", runs))
    found.push_back({folder, ModelConfig::read(folder)});
  return found;
}

/// Whether `b` holds the tensors of `a`, bit for bit, of the same names and shapes.
void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const SafetensorsFolder before(a);
  const SafetensorsFolder after(b);
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    if (!after.has(name)) continue;
    EXPECT_EQ(before.info(name).shape, after.info(name).shape) << name;
    EXPECT_EQ(before.info(name).dtype, after.info(name).dtype) << name;
    EXPECT_TRUE(std::ranges::equal(before.file_of(name).raw(name), after.file_of(name).raw(name))) << name;
  }
}

class GoldenCommands : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// The output of a command that must succeed.
  std::string run(const std::string& words, int ranks = 0) const {
    const Outcome outcome = testing::moeloom_command(words, ranks, path("cache"));
    EXPECT_EQ(outcome.exit_code, 0) << "moeloom " << words << "\n" << outcome.output;
    return outcome.output;
  }
  std::string refusal(const std::string& words) const {
    const Outcome outcome = testing::moeloom_command(words, 0, path("cache"));
    EXPECT_EQ(outcome.exit_code, 1) << "moeloom " << words << "\n" << outcome.output;
    return outcome.output;
  }

  /// Ids of the model's vocabulary, two bytes each.
  std::string tokens(const Model& model) const {
    const std::string file = path("tokens.bin");
    std::ofstream stream(file, std::ios::binary);
    const CounterRandom random(7, 0);
    for (std::uint64_t i = 0; i < 600; ++i) {
      const auto id =
          static_cast<std::uint16_t>(random.uniform(i) * static_cast<double>(model.config.vocab_size));
      stream.write(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    return file;
  }
  std::string train(const Model& model, const std::string& flags) const {
    return "train --seq-len 16 --global-batch 4 --eval-sequences 2 --save-every 0 --gmm-rule upstream "
           "--data " +
           tokens(model) + " --run " + path("run") + " " + flags;
  }
  std::string mesh(const Model& model) const { return model.config.num_experts % 2 == 0 ? "--ep 2 " : ""; }

  void start_anew() const {
    for (const char* name : {"run", "out", "again", "stacked", "list", "moe"}) fs::remove_all(folder_ / name);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(GoldenCommands, InspectAndKernelsKnowEveryModule) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.folder.filename().string());
    const std::string seen = run("inspect " + model.folder.string());
    EXPECT_NE(seen.find("0 unused"), std::string::npos) << seen;
    EXPECT_NE(seen.find(model.config.family().architecture), std::string::npos) << seen;
    const std::string frozen = run("inspect --freeze '*' " + model.folder.string());
    EXPECT_TRUE(std::regex_search(frozen, std::regex("gradients +0 bytes\\n +AdamW moments +0 bytes")))
        << frozen;
    const std::string kernels = run("kernels --gmm-rule upstream --ep 2 --model " + model.folder.string());
    const std::string output = "self_attn." + model.config.family().attention.output;
    for (const std::string& part : {std::string("embed_tokens"), output, std::string("fused_rope"),
                                    std::string("tiled_dense"), std::string("lm_head")})
      EXPECT_NE(kernels.find(part), std::string::npos) << part << kernels;
    const bool sparse = model.config.has_experts();
    EXPECT_EQ(kernels.find((model.config.names.block.empty() ? "" : model.config.names.block + ".") +
                           "experts ") != std::string::npos,
              sparse)
        << kernels;
    EXPECT_NE(kernels.find(model.config.hidden_act + "(gate) * up"), std::string::npos) << kernels;
  }
}

/// In `inspect` and `kernels`.
TEST_F(GoldenCommands, NamesOfPartsThatDifferByLayer) {
  const struct {
    std::string name;
    std::vector<std::string> inspected, kernels;
  } cases[] = {
      {"laguna",
       {"2, 4 or 6 of 12, 2 for keys and values, by layer", "softplus, a number a head"},
       {"self_attn.g_proj"}},
      {"laguna_elements", {"logits at most 1 by tanh"}, {"at most 1 by tanh"}},
      {"gemma4",
       {"4 of 8 or 16, 1 or 2 for keys and values, by layer", "keys are values        in 1 of 3 layers",
        "an MLP and experts side by side", "intermediate_size      30", "reads the residual stream",
        "embeddings, logits at most 4 by tanh", "of its output, frozen"},
       {"router.proj input", "values are the keys before their norm", "post_feedforward_layernorm_2"}},
      {"gemma4_ple",
       {"lent keys and values   in 2 of 4 layers", "intermediate_size      20 or 40",
        "6 numbers a layer, of 47 tokens"},
       {"keys and values of layer 1", "per_layer_input_gate", "embed_tokens_per_layer"}},
      {"hunyuan_v1_moe_alpha", {"top-2 or 3, by layer"}, {"top-2", "top-3", "mlp.gate.wg", "NTK alpha"}},
      {"mimo_v2_flash", {"sinks                  in 2 of 3 layers", "values of 8"}, {"a sink a head"}},
      {"cohere2_moe",
       {"side by side", "softmax over the chosen", "no rotary embedding    in 1 of 4"},
       {"LayerNorm"}},
      {"cohere2_moe_sigmoid", {"sigmoid, weights divided by their sum", "averaged with"}, {"sigmoid, top-3"}},
  };
  for (const Model& model : models())
    for (const auto& c : cases) {
      if (model.folder.filename() != c.name) continue;
      const std::string seen = run("inspect " + model.folder.string());
      for (const std::string& part : c.inspected)
        EXPECT_NE(seen.find(part), std::string::npos) << part << seen;
      const std::string kernels = run("kernels --gmm-rule upstream --model " + model.folder.string());
      for (const std::string& part : c.kernels)
        EXPECT_NE(kernels.find(part), std::string::npos) << part << kernels;
    }
}

const std::string kByLayer = "per_layer_config", kGlobal = "global_head_dim";

/// A rate that moves no weight, not even from zero, shows what comes in and goes out. What released folders
/// say otherwise leaves as they say it: Qwen3.5's experts as stacks, heads of Gemma4's full layers by one
/// key.
TEST_F(GoldenCommands, WhatIsImportedIsExportedBitForBit) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.folder.filename().string());
    start_anew();
    run(train(model, mesh(model) + "--steps 1 --lr 1e-300 --weight-decay 0 --model " + model.folder.string() +
                         " --export " + path("out")),
        2);
    const bool restacked = ModelConfig::read(path("out")).names.experts != model.config.names.experts;
    fs::remove_all(path("listed"));
    if (restacked) run("convert " + path("out") + " " + path("listed") + " --layout list");
    expect_same_tensors(model.folder, path(restacked ? "listed" : "out"));
    const Document before = Document::read(model.folder / "config.json");
    const Document after = Document::read(fs::path(path("out")) / "config.json");
    EXPECT_EQ(before.text("model_type"), after.text("model_type"));
    for (const std::string& key : before.keys())
      EXPECT_EQ(std::ranges::count(after.keys(), key == kByLayer ? kGlobal : key), 1) << key;
    run(train(model, "--overwrite --steps 1 --lr 1e-300 --weight-decay 0 --model " + path("out") +
                         " --export " + path("again")),
        1);
    expect_same_tensors(path("out"), path("again"));
  }
}

TEST_F(GoldenCommands, AreTrainedFrozenInPartsResumedExportedAndAsked) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.folder.filename().string());
    start_anew();
    run(train(model, mesh(model) + "--steps 2 --freeze '*self_attn*' --export " + path("out") +
                         " --export-dtype bf16 --model " + model.folder.string()),
        2);
    const std::string resumed = run(train(model, "--steps 3 --ep 1 --resume " + path("run")), 1);
    EXPECT_NE(resumed.find("frozen=\""), std::string::npos) << resumed;
    const SafetensorsFolder before(model.folder);
    const SafetensorsFolder after(fs::path(path("run")) / "checkpoint-3");
    for (const std::string& name : before.names())
      if (name.find("self_attn") != std::string::npos) {
        EXPECT_TRUE(std::ranges::equal(before.file_of(name).raw(name), after.file_of(name).raw(name)));
      }
    const std::string words = "generate --prompt-ids 1,2,3 --tokens 4 --temperature 0 --model " + path("out");
    EXPECT_EQ(run(words), run(words + " " + mesh(model), 2)) << "the text does not depend on ep";
  }
}

TEST_F(GoldenCommands, ExpertsAreStackedTrainedAndListedAgain) {
  for (const Model& model : models()) {
    if (!model.config.has_experts() || model.config.names.experts != ExpertLayout::kList) continue;
    if (model.config.mlp_bias) continue;  // of which there is no stack
    SCOPED_TRACE(model.folder.filename().string());
    start_anew();
    run("convert " + model.folder.string() + " " + path("stacked") + " --layout stacked");
    run(train(model, mesh(model) + "--steps 1 --lr 1e-300 --weight-decay 0 --model " + path("stacked") +
                         " --export " + path("out")),
        2);
    expect_same_tensors(path("stacked"), path("out"));
    run("convert " + path("out") + " " + path("list") + " --layout list");
    expect_same_tensors(model.folder, path("list"));
  }
}

TEST_F(GoldenCommands, ADenseModelBecomesOneWithExperts) {
  for (const Model& model : models()) {
    if (model.config.model_type != "qwen3" && model.config.model_type != "llama") continue;
    SCOPED_TRACE(model.folder.filename().string());
    start_anew();
    run("convert " + model.folder.string() + " " + path("moe") + " --experts 4 --top-k 2 --noise 0.01");
    run(train(model, "--ep 2 --steps 2 --model " + path("moe")), 2);
  }
}

TEST_F(GoldenCommands, RouterLossesAreRefusedWhereNoneExist) {
  for (const Model& model : models()) {
    if (model.config.has_z_loss()) continue;
    SCOPED_TRACE(model.folder.filename().string());
    const std::string text =
        refusal(train(model, "--aux-loss-coef 0.01 --z-loss-coef 0.001 --model " + model.folder.string()));
    EXPECT_EQ(text.find("--aux-loss-coef 0.01 has nothing to weigh") != std::string::npos,
              !model.config.has_experts())
        << text;
    EXPECT_NE(text.find("--z-loss-coef 0.001 has nothing to weigh"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace moeloom
