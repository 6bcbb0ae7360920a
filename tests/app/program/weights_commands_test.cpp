// Weights from and to folders as a person meets them: shards, exports, exceptions, frozen weights,
// conversions.
#include "io/safetensors_shards.hpp"
#include "moeloom/io/document.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <fstream>

#include "program/command_line.hpp"
#include "record/exit_code.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::Outcome;

class WeightsCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 300; ++i) text << "And the weaver drew thread " << i * i % 89 << ".\n";
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Outcome shell(const std::string& words, int ranks = 1) const {
    return testing::moeloom_command(words, ranks, path("cache"));
  }

  std::string shape() const {
    return "--layers 1 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2 ";
  }
  std::string train(const std::string& flags) const {
    return "train --seq-len 16 --global-batch 4 --eval-sequences 4 --sample-chars 0 --gmm-rule upstream "
           "--data " +
           path("corpus.txt") + " " + flags;
  }

  void expect_says(const Outcome& outcome, int exit_code, const std::string& part) const {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }

  testing::TemporaryFolder folder_;
};

bool same_tensor(const SafetensorsFolder& a, const SafetensorsFolder& b, const std::string& name) {
  return std::ranges::equal(a.file_of(name).raw(name), b.file_of(name).raw(name));
}

TEST_F(WeightsCommands, FrozenWeightsStayThroughShardsAResumeAndAnExport) {
  const std::string freeze = "--freeze '*self_attn*,model.embed_tokens.weight' ";
  const Outcome run = shell(train(shape() + freeze + "--run " + path("run") +
                                  " --keep 0 --save-every 1 --steps 2 --shard-size 10KB"),
                            2);
  expect_says(run, 0, "frozen=\"");
  const Outcome resumed = shell(
      train("--resume " + path("run") + " --steps 3 --export " + path("out") + " --export-dtype bf16"), 1);
  expect_says(resumed, 0, "exported=" + path("out"));
  const SafetensorsFolder first(path("run/checkpoint-1"));
  const SafetensorsFolder last(path("run/checkpoint-3"));
  EXPECT_GT(first.files().size(), 2u);
  EXPECT_GT(last.files().size(), 2u) << "the size of shards belongs to the run";
  for (const std::string& name : first.names()) {
    const bool frozen = name.find("self_attn") != std::string::npos || name == "model.embed_tokens.weight";
    EXPECT_EQ(same_tensor(first, last, name), frozen) << name;
  }
  EXPECT_EQ(SafetensorsFolder(path("out")).info("lm_head.weight").dtype, DType::kBF16);
  EXPECT_FALSE(fs::exists(path("out/optimizer.safetensors")));
  const Outcome thawed = shell(train("--resume " + path("run") + " --steps 4 --freeze lm_head.weight"), 1);
  expect_says(thawed, 1, "was trained with other parameters frozen");
  expect_says(shell("inspect " + path("run/checkpoint-1"), 0), 0, "file model-00001-of-0000");
}

TEST_F(WeightsCommands, InspectTakesAConfigAloneButNotWeightsThatAreBroken) {
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1 --export " + path("one"))).exit_code,
            0);
  fs::create_directory(path("alone"));
  fs::copy_file(path("one/config.json"), path("alone/config.json"));
  const auto inspected = [&](const char* folder) {
    return shell("inspect " + path(folder) + " --ranks 2 --ep 2", 0);
  };
  const Outcome whole = inspected("one");
  const Outcome alone = inspected("alone");
  // Behind the folder's name and before the tensors, the two say the same.
  const auto middle = [](const Outcome& outcome) {
    const std::size_t begin = outcome.output.find("model_type");
    return outcome.output.substr(begin, outcome.output.find("\ntensors: ") - begin);
  };
  EXPECT_EQ(middle(whole), middle(alone));
  EXPECT_NE(middle(alone).find("memory of a rank"), std::string::npos) << alone.output;
  const auto count = std::to_string(SafetensorsFolder(path("one")).names().size());
  expect_says(whole, 0, "\ntensors: " + count + " expected, " + count + " found");
  expect_says(alone, 0,
              "\ntensors: " + count + " expected, none found: " + path("alone") + " holds no weights\n");
  const fs::path weights = path("alone/model.safetensors");
  testing::write_bytes(path("alone/pytorch_model.bin"), "x");
  expect_says(inspected("alone"), kDataExitCode, "no weights that can be loaded");
  fs::remove(path("alone/pytorch_model.bin"));
  fs::copy_file(path("one/model.safetensors"), weights);
  fs::resize_file(weights, fs::file_size(weights) - 4);
  expect_says(inspected("alone"), kDataExitCode, weights.string());
  fs::remove(weights);
  Document config = Document::read(path("alone") + "/config.json");
  config.set("num_key_value_heads", 3);
  config.write(path("alone") + "/config.json");
  expect_says(inspected("alone"), kDataExitCode, "num_key_value_heads = 3");
}

TEST_F(WeightsCommands, TensorsMayBeMissingWhereThatIsSaid) {
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1 --export " + path("one"))).exit_code,
            0);
  Document config = Document::read(path("one") + "/config.json");
  config.set("num_hidden_layers", 2);
  config.write(path("one") + "/config.json");
  const std::string from_one = "--steps 1 --model " + path("one") + " --run " + path("two");
  expect_says(shell(train(from_one)), kDataExitCode,
              "one is damaged: config.json: bytes 0 to 908 are not what was written; for the newest whole "
              "checkpoint name the run's folder, and where the change was meant remove");
  std::filesystem::remove(path("one") + "/manifest.json");
  expect_says(shell(train(from_one)), kDataExitCode, "model.layers.1.input_layernorm.weight: missing");
  expect_says(shell(train(from_one + " --allow-missing 'model.layers.?.*,visual.*'")), 1,
              "pattern \"visual.*\": no missing or unexpected");
  const Outcome allowed = shell(train(from_one + " --allow-missing 'model.layers.1.*'"), 2);
  expect_says(allowed, 0, "missing=\"model.layers.1.");
}

TEST_F(WeightsCommands, AskingAFolderWithWeightsThatCannotBeReadNamesThem) {
  const std::string one = path("one"), ask = "eval --model " + one + " --data " + one + "/config.json";
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1 --export " + one)).exit_code, 0);
  std::filesystem::remove(one + "/manifest.json");
  std::filesystem::rename(one + "/model.safetensors", one + "/pytorch_model.bin");
  expect_says(shell(ask), kDataExitCode, "only safetensors are read; convert them");
  std::filesystem::rename(one + "/pytorch_model.bin", one + "/model-00001-of-00002.safetensors");
  expect_says(shell(ask), kDataExitCode, "model.safetensors.index.json, which says what each shard holds");
}

TEST_F(WeightsCommands, UnknownKeysArePassedOverWhereTheyAreNamed) {
  const std::string one = path("one");
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1 --export " + one)).exit_code, 0);
  Document config = Document::read(one + "/config.json");
  config.set("frobnicate", 2);
  config.set("knob", 3);
  config.write(one + "/config.json");
  fs::remove(one + "/manifest.json");
  const std::string named = " --ignore-keys frobnicate,knob";
  for (const std::string& command :
       {"inspect " + one, "convert " + one + " " + path("two") + " --export-dtype fp32",
        "generate " + one + " --tokens 1 --prompt a"}) {
    const Outcome refused = shell(command, 0);
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_NE(refused.output.find(named), std::string::npos) << refused.output;
    const Outcome passed = shell(command + named, 0);
    EXPECT_EQ(passed.exit_code, 0) << command << passed.output;
  }
  EXPECT_EQ(Document::read(path("two") + "/config.json").integer("knob"), 3);
  const std::string go_on = "--steps 1 --model " + one + " --run " + path("again");
  expect_says(shell(train(go_on)), kDataExitCode, named);
  EXPECT_EQ(shell(train(go_on + named)).exit_code, 0);
}

TEST_F(WeightsCommands, ExportsAskForNoRouterLogitsAndSayRopeInBothSpellings) {
  for (const char* experts : {"--experts 0 --dense-inter 8", "--experts 4 --top-k 2"}) {
    fs::remove_all(path("one"));
    const Outcome outcome = shell(
        train(std::string("--layers 1 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 ") + experts +
              " --overwrite true --steps 1 --run " + path("run") + " --export " + path("one")));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const Document config = Document::read(path("one") + "/config.json");
    EXPECT_FALSE(config.boolean_or("output_router_logits", false)) << experts;
    EXPECT_EQ(config.object("rope_parameters").number("rope_theta"), config.number("rope_theta"));
    EXPECT_FALSE(config.has("rope_scaling"));
  }
  const Outcome resumed = shell(train("--resume " + path("run") + " --steps 2 --export " + path("two")));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_FALSE(Document::read(path("two") + "/config.json").boolean_or("output_router_logits", false));
}

TEST_F(WeightsCommands, OptionsWithoutEffectAndPatternsWithoutMatchAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"--allow-missing 'x.*'", "--allow-missing is that of --model DIR"},
      {"--export-dtype bf16", "--export-dtype is that of --export DIR"},
      {"--freeze 'x.*'", "--freeze: pattern \"x.*\" matches no tensor"},
      {"--freeze '*.q_proj.weight'", "self_attn.qkv_proj.weight is trained as one: the patterns match"},
      {"--freeze '*'", "--freeze * leaves nothing to train"},
      {"--shard-size 5XB", "expected bytes"},
      {"--export .", "has no name that a new folder could take"},
  };
  for (const auto& [flags, expected] : cases) {
    const Outcome outcome = shell(train(shape() + "--steps 1 --run " + path("run") + " " + flags));
    expect_says(outcome, 1, expected);
    EXPECT_FALSE(fs::exists(path("run"))) << flags;
  }
}

/// A multimodal folder: the text model starts anew, and a tower of another format is put beside it.
void add_tower(const fs::path& text, const fs::path& target) {
  const SafetensorsFolder before(text);
  fs::create_directory(target);
  fs::copy_file(text / "config.json", target / "config.json");
  std::vector<TensorSpec> specs = {{"model.visual.merger.norm.weight", DType::kBF16, {6}}};
  for (const std::string& name : before.names())
    specs.push_back({name, before.info(name).dtype, before.info(name).shape});
  const ShardPlan plan = plan_shards(specs);
  create_shards(target, plan);
  ShardWriter writer(target, plan);
  writer.write(specs[0].name, 0, std::vector<float>{1, -2, 3, -4, 5, -6});
  for (const std::string& name : before.names()) writer.write_bytes(name, 0, before.file_of(name).raw(name));
  writer.close();
}

TEST_F(WeightsCommands, OtherTowersGoThroughTrainingAResumeAndExports) {
  fs::create_directory(path("text"));
  std::ofstream(path("text/config.json")) << R"({"model_type": "qwen3_vl_moe", "dtype": "float32",
    "vision_config": {"dtype": "bfloat16"}, "text_config": {"model_type": "qwen3_vl_moe_text",
    "dtype": "float32", "vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 8,
    "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2}})";
  const std::string start = "--steps 1 --model " + path("text") + " --export " + path("one");
  ASSERT_EQ(shell(train(start + " --run " + path("first"))).exit_code, 0);
  expect_says(shell(train("--steps 1 --model " + path("one") + " --run " + path("second"))), 0,
              "holds no tensor of model.visual.*");
  add_tower(path("one"), path("whole"));
  expect_says(shell("inspect " + path("whole"), 0), 0, "0 unused, 1 carried");
  expect_says(shell(train("--steps 1 --model " + path("whole") + " --run " + path("run")), 2), 0,
              "carried=1");
  expect_says(shell(train("--resume " + path("run") + " --steps 3 --keep 1 --save-every 1 --export " +
                          path("out") + " --export-dtype bf16")),
              0, "exported=" + path("out"));
  const SafetensorsFolder whole(path("whole")), out(path("out")), kept(path("run/checkpoint-3"));
  EXPECT_EQ(whole.names(), out.names());
  EXPECT_TRUE(same_tensor(whole, out, "model.visual.merger.norm.weight"));
  EXPECT_TRUE(same_tensor(whole, kept, "model.visual.merger.norm.weight"));
  const Document config = Document::read(path("out") + "/config.json");
  EXPECT_EQ(config.text("dtype"), "bfloat16");
  EXPECT_EQ(config.object("text_config").text("dtype"), "bfloat16");
}

TEST_F(WeightsCommands, ConvertStacksAndListsBitForBitAndReplacesNothing) {
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1")).exit_code, 0);
  testing::write_bytes(folder_ / "run" / "checkpoint-1" / "tokenizer.json", "{}");
  expect_says(shell("convert " + path("run") + " " + path("stacked") + " --layout stacked", 0), 0,
              "qwen3_moe, ");
  EXPECT_TRUE(fs::exists(path("stacked/tokenizer.json")));
  EXPECT_TRUE(SafetensorsFolder(path("stacked")).has("model.layers.0.mlp.experts.gate_up_proj"));
  ASSERT_EQ(shell("convert " + path("stacked") + " " + path("list") + " --layout list --shard-size 5KB", 0)
                .exit_code,
            0);
  const SafetensorsFolder before(path("run/checkpoint-1"));
  const SafetensorsFolder after(path("list"));
  EXPECT_GT(after.files().size(), 1u);
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) EXPECT_TRUE(same_tensor(before, after, name)) << name;
  expect_says(shell("inspect " + path("list"), 0), 0, "unused");
  expect_says(shell("convert " + path("run") + " " + path("list") + " --layout stacked", 0), 1,
              "is there and not an empty folder");
  expect_says(shell("convert " + path("run") + " " + path("moe") + " --experts 4", 0), 1,
              "cannot be upcycled");
  fs::create_directory_symlink("empty", path("link"));
  expect_says(shell("convert " + path("run") + " " + path("link") + " --layout stacked", 0), 1, "is a link");
  EXPECT_FALSE(fs::exists(path(".moe.partial")));
}

TEST_F(WeightsCommands, ConvertCopiesNoFileFromElsewhere) {
  ASSERT_EQ(shell(train(shape() + "--run " + path("run") + " --steps 1")).exit_code, 0);
  const fs::path model = folder_ / "models--a--b" / "snapshots" / "1234";
  fs::create_directories(model.parent_path());
  fs::create_directories(folder_ / "models--a--b" / "blobs");
  fs::copy(folder_ / "run" / "checkpoint-1", model);
  testing::write_bytes(folder_ / "secret", "mine");
  testing::write_bytes(folder_ / "models--a--b" / "blobs" / "ab12", "theirs");
  fs::create_symlink("../../blobs/ab12", model / "tokenizer.json");
  expect_says(shell("convert " + model.string() + " " + path("cached") + " --layout stacked", 0), 0,
              "qwen3_moe");
  EXPECT_EQ(testing::read_bytes(folder_ / "cached" / "tokenizer.json"), "theirs");
  fs::create_symlink("../../../secret", model / "vocab.json");
  expect_says(shell("convert " + model.string() + " " + path("stolen") + " --layout stacked", 0),
              kDataExitCode, "outside of the model's folder");
  EXPECT_FALSE(fs::exists(path("stolen")));
}

}  // namespace
}  // namespace moeloom
