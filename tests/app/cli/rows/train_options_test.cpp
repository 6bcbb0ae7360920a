#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <array>
#include <map>

#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/rows/command_tables.hpp"
#include "fields/data_source.hpp"
#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;
using Words = std::vector<std::string>;

TrainOptions parse(const Words& words) {
  std::vector<const char*> argv = {"train"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_train_options(static_cast<int>(argv.size()), argv.data());
}

/// What parsing complains about; empty if it does not.
Words complaints(const Words& words) {
  try {
    parse(words);
  } catch (const ConfigError& error) {
    Words shown;
    for (const std::string& violation : error.violations()) shown.push_back(with_flag_names(violation));
    return shown;
  }
  return {};
}

/// The lines `name = value` of a configuration.
std::map<std::string, std::string> settings(const std::string& text) {
  std::map<std::string, std::string> found;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = line.find(" =");
    if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
    found[line.substr(0, equals)] = line.substr(std::min(equals + 3, line.size()));
  }
  return found;
}

/// Values that are not the default, of options whose text is neither a number, nor yes or no, nor one of a
/// few words; and of numbers that are hard to write.
const std::map<std::string, std::string> kOtherTexts = {{"net", "200Gbit,2us"},
                                                        {"rope-theta", "500000.5"},
                                                        {"dense-layers", "0,2"},
                                                        {"mesh-order", "ep,dp"},
                                                        {"stall-timeout", "90"},
                                                        {"overlap", "4"},
                                                        {"overlap-grad-reduce", "on"},
                                                        {"overlap-param-gather", "off"},
                                                        {"kernels", "fused_rope,fused_moe"},
                                                        {"gmm-budget", "96MiB"},
                                                        {"data", "a folder/corpus # 1.txt"},
                                                        {"data-format", "u32"},
                                                        {"heldout", "0.125"},
                                                        {"cache", "a cache"},
                                                        {"tokenizer", "words"},
                                                        {"lr", "0.00030000000000000003"},
                                                        {"warmup", "7"},
                                                        {"aux-loss-coef", "0.02"},
                                                        {"force-routing", "zipf"},
                                                        {"run", "runs/other"},
                                                        {"seed", "18446744073709551615"},
                                                        {"async-save", "false"},
                                                        {"memory", "12GiB"},
                                                        {"offload", "/disk/of a node"},
                                                        {"prompt", " \"In\\the\nbeginning\"\t#1 "},
                                                        {"allow-missing", "visual.*,lm_head.weight"},
                                                        {"ignore-keys", "a,text_config.b"},
                                                        {"template", "a=1,b=\"x, y\",c=[1,2]"},
                                                        {"freeze", "*norm*,model.embed_tokens.weight"},
                                                        {"lora", "r=8,alpha=4,targets=router,*.q_proj"},
                                                        {"shard-size", "500MB"},
                                                        {"export", "runs/exported"},
                                                        {"trace", "runs/trace.json"},
                                                        {"trace-steps", "10:20"},
                                                        {"record-routing", "runs/a.routing"},
                                                        {"record-steps", "10:20"},
                                                        {"replay-routing", "runs/b.routing"}};

/// Another value than its own.
std::string other_value(const Option& option) {
  if (const auto text = kOtherTexts.find(option.name); text != kOtherTexts.end()) return text->second;
  const std::string value = option.get();
  if (option.is_boolean) return value == "true" ? "false" : "true";
  for (const std::string& word : split(option.value_name, '|'))
    if (word != option.value_name && word != value) return word;
  const auto number = value_in<double>(value);
  return number ? value_text(*number + 1) : "";
}

TEST(TrainOptions, EveryOptionComesBackFromTheResolvedConfiguration) {
  const TemporaryFolder folder;
  TrainOptions usual;
  const OptionTable table = train_table(usual);
  for (const Option& option : table.options()) {
    const std::string& name = option.name;
    if (name == "model" || name == "resume") continue;  // they say where the shape is, and the rest
    const TrainOptions said = parse({"--" + name, other_value(option)});
    const std::string text = resolved_config(said);
    EXPECT_NE(text, resolved_config(TrainOptions())) << name << " changes nothing";
    write_bytes(folder / "train.conf", text);
    const TrainOptions read = parse({"--config", (folder / "train.conf").string()});
    EXPECT_EQ(resolved_config(read), text) << name;
  }
}

TEST(TrainOptions, ReadBackFieldsHaveTheSameBits) {
  const TemporaryFolder folder;
  TrainOptions said;
  said.optimizer.learning_rate = 1.0 / 3;
  said.run.prompt = " \"In\\the\nbeginning\"\t#1 ";
  said.data.sources = {{"a folder/corpus # 1.txt", 0.75}, {"b.jsonl", 0.25}};
  said.model.shape.mlp_only_layers = {0, 2};
  said.kernels.gmm_budget_bytes = (Index{1} << 30) + 1;
  write_bytes(folder / "train.conf", resolved_config(said));
  const TrainOptions read = parse({"--config", (folder / "train.conf").string()});
  EXPECT_EQ(read.optimizer.learning_rate, said.optimizer.learning_rate);
  EXPECT_EQ(read.run.prompt, said.run.prompt);
  EXPECT_EQ(read.data.sources, said.data.sources);
  EXPECT_EQ(read.model.shape.mlp_only_layers, said.model.shape.mlp_only_layers);
  EXPECT_EQ(read.kernels.gmm_budget_bytes, said.kernels.gmm_budget_bytes);
  EXPECT_FALSE(read.optimizer.warmup);
}

TEST(TrainOptions, ALoadedModelLeavesItsShapeOutOfTheConfiguration) {
  const auto said = settings(resolved_config(parse({"--model", "qwen"})));
  EXPECT_FALSE(said.contains("layers"));
  EXPECT_EQ(said.at("model"), "qwen");
}

TEST(TrainOptions, TheCommandLineWinsOverTheFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.conf",
              "# a comment\n\nsteps = 10   # another\nlr=0.5\noverwrite = yes\nprompt = a#b\n");
  const TrainOptions read =
      parse({"--steps", "20", "--config", (folder / "a.conf").string(), "--overwrite=off"});
  EXPECT_EQ(read.run.steps, 20);
  EXPECT_EQ(read.optimizer.learning_rate, 0.5);
  EXPECT_FALSE(read.run.overwrite);
  EXPECT_EQ(read.run.prompt, "a#b");
}

TEST(TrainOptions, ASwitchTakesAValueOrNone) {
  EXPECT_TRUE(parse({"--overwrite"}).run.overwrite);
  EXPECT_TRUE(parse({"--overwrite", "--steps", "3"}).run.overwrite);
  EXPECT_FALSE(parse({"--norm-topk", "NO"}).model.shape.norm_topk_prob);
  EXPECT_FALSE(parse({"--norm-topk=0"}).model.shape.norm_topk_prob);
  EXPECT_TRUE(parse({"--tie-embeddings", "on"}).model.shape.tie_word_embeddings);
}

TEST(TrainOptions, OfAnOptionGivenTwiceTheLastCounts) {
  EXPECT_EQ(parse({"--steps", "3", "--steps", "4"}).run.steps, 4);
}

TEST(TrainOptions, HelpShowsEveryGroup) {
  for (const char* part : {"Model:", "Mesh and kernels:", "Data:", "Optimizer:", "Run:", "--starved-experts",
                           "--config", "decay|skip", "(=256)"})
    EXPECT_NE(train_help().text.find(part), std::string::npos) << part;
}

TEST(TrainOptions, WhatCannotBeReadIsNamedWithTheWayOut) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--layer", "3"}, "unknown option \"--layer\"; did you mean --layers?"},
      {{"--global_batch", "3"}, "unknown option \"--global_batch\"; did you mean --global-batch?"},
      {{"--zzzzzzz", "3"}, "unknown option \"--zzzzzzz\"; --help lists all"},
      {{"--glob", "3"}, "unknown option \"--glob\"; --help lists all"},
      {{"--steps", "ten"}, "--steps = \"ten\": expected a whole number"},
      {{"--steps", "1.5"}, "--steps = \"1.5\": expected a whole number"},
      {{"--steps", "99999999999999999999"}, "--steps = \"99999999999999999999\": expected a whole number"},
      {{"--seed", "-1"}, "--seed = \"-1\": expected a whole number from 0 to 2^64 - 1"},
      {{"--lr", "nan"}, "--lr = \"nan\": expected a finite number"},
      {{"--lr", "1e-3x"}, "--lr = \"1e-3x\": expected a finite number"},
      {{"--dtype", "fp16"}, "--dtype = \"fp16\": valid: fp32, bf16"},
      {{"--on-nan", "panic"}, "--on-nan = \"panic\": valid: stop, skip"},
      {{"--trace-steps", "10"},
       "--trace-steps = \"10\": expected two whole numbers from 0 on, the second the larger, as 10:20"},
      {{"--trace-steps", "1:2:3"},
       "--trace-steps = \"1:2:3\": expected two whole numbers from 0 on, the second the larger, as 10:20"},
      {{"--trace-steps", "4:4"},
       "--trace-steps = \"4:4\": expected two whole numbers from 0 on, the second the larger, as 10:20"},
      {{"--record-steps", "-1:4"},
       "--record-steps = \"-1:4\": expected two whole numbers from 0 on, the second the larger, as 10:20"},
      {{"--trace-steps", "a:2"},
       "--trace-steps = \"a:2\": expected two whole numbers from 0 on, the second the larger, as 10:20"},
      {{"--overwrite=maybe"}, "--overwrite = \"maybe\": expected one of 1, true, on, yes, 0, false, off, no"},
      {{"--gmm-budget", "4XB"},
       "--gmm-budget = \"4XB\": expected bytes, as 4GiB, 512MiB, 64KiB, 5GB, 500MB or a plain number"},
      {{"--gmm-budget", "9999999TiB"},
       "--gmm-budget = \"9999999TiB\": expected bytes, as 4GiB, 512MiB, 64KiB, 5GB, 500MB or a plain number"},
      {{"--dense-layers", "0,,1"}, "--dense-layers = \"0,,1\": expected values with commas between them"},
      {{"stray"}, "unexpected \"stray\"; --help lists what is known"}};
  for (const auto& [words, expected] : cases) EXPECT_EQ(complaints(words), Words{expected});
}

TEST(TrainOptions, AllThatCannotBeReadIsListedAtOnce) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.conf", "seed = 1\nstep = 10\nlr = fast\n");
  const std::string file = (folder / "a.conf").string();
  EXPECT_EQ(complaints({"--config", file, "--layer", "2", "--hidden", "wide"}),
            (Words{"unknown option \"--layer\"; did you mean --layers?",
                   file + ":2: unknown option \"step\"; did you mean steps?",
                   "--hidden = \"wide\": expected a whole number",
                   file + ":3: lr = \"fast\": expected a finite number"}));
}

TEST(TrainOptions, AMissingValueAndAMissingFileAreErrors) {
  EXPECT_EQ(complaints({"--steps"}), Words{"--steps needs a value: --steps N"});
  EXPECT_EQ(complaints({"--lr", "--steps", "x"}),
            (Words{"--lr needs a value: --lr X", "--steps = \"x\": expected a whole number"}));
  const Words missing = complaints({"--config", "/no/such/file.conf"});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_TRUE(missing[0].starts_with("cannot open /no/such/file.conf")) << missing[0];
}

TEST(TrainOptions, WhatCannotBeReadIsAnsweredBeforeValuesAreJudged) {
  EXPECT_EQ(complaints({"--ep", "x", "--lr", "-1", "--layer", "3", "--warmup"}),
            (Words{"unknown option \"--layer\"; did you mean --layers?", "--warmup needs a value: --warmup N",
                   "--ep = \"x\": expected a whole number"}));
}

TEST(TrainOptions, EveryOptionSaysWhyThereIsOne) {
  TrainOptions options;
  const OptionTable table = train_table(options);
  for (const Option& option : table.options()) EXPECT_NE(option.why, "") << option.name;
}

TEST(TrainOptions, AValueMayBeEmptyOrLookLikeAnOption) {
  EXPECT_EQ(parse({"--prompt=", "--steps", "3"}).run.prompt, "");
  EXPECT_EQ(parse({"--prompt", ""}).run.prompt, "");
  EXPECT_EQ(parse({"--prompt=--steps"}).run.prompt, "--steps");
}

TEST(TrainOptions, AConfigurationCannotNameAnother) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.conf", "config = b.conf\n");
  EXPECT_EQ(complaints({"--config", (folder / "a.conf").string()}).size(), 1u);
}

TEST(TrainOptions, AResumedRunIsToldWhatBecameOfOptionsThatAreGone) {
  const TemporaryFolder folder;
  const auto gone = [&](const std::string& line) {
    write_bytes(folder / "train.conf", line + "\ndata = c.txt\n");
    return parse({"--resume", folder.path().string(), "--steps", "20"}).gone;
  };
  for (const auto& [name, now, other] :
       {std::array{"progress-thread", "auto", "on"}, std::array{"calibrate", "false", "true"},
        std::array{"router-jitter", "0", "0.1"}, std::array{"drop-by", "probability", "position"},
        std::array{"router-bias-rule", "sign", "proportional"}, std::array{"muon-momentum", "0.95", "0.9"},
        std::array{"decay-all", "false", "true"}, std::array{"sparse-step", "1", "2"},
        std::array{"quiet", "false", "true"}, std::array{"node-pool", "auto", "true"},
        std::array{"replace-every", "0", "20"}}) {
    const std::string line = std::string(name) + " = ";
    ASSERT_EQ(gone(line + other).size(), 1U) << name;
    EXPECT_TRUE(gone(line + other)[0].starts_with(line + other + " is gone: ")) << gone(line + other)[0];
    const Words said = complaints({"--config", (folder / "train.conf").string()});
    ASSERT_EQ(said.size(), 1U) << name << " would change a new run in silence";
    EXPECT_TRUE(said[0].ends_with("; remove it")) << said[0];
    EXPECT_TRUE(gone(line + now).empty()) << name;
    EXPECT_TRUE(complaints({"--config", (folder / "train.conf").string()}).empty());
  }
  EXPECT_TRUE(gone("decay-all = no").empty());
  EXPECT_TRUE(gone("dispatcher = shared").empty());
  ASSERT_EQ(gone("dispatcher = allgather").size(), 1U) << "a word that is gone";
  EXPECT_EQ(complaints({"--config", (folder / "train.conf").string()}).size(), 1U);
  EXPECT_TRUE(
      parse({"--resume", folder.path().string(), "--steps", "20", "--dispatcher", "shared"}).gone.empty());
  EXPECT_TRUE(gone("router-jitter = 0.0").empty());
}

TEST(TrainOptions, RowsNameOptionsThatThereAre) {
  TrainOptions train;
  GenerateOptions generate;
  const auto expect_known = [](const OptionTable& table) {
    for (const Option& option : table.options()) {
      EXPECT_TRUE(option.belongs_to.empty() || table.find(option.belongs_to) != nullptr) << option.name;
      for (const auto& other : option.contradictions)
        EXPECT_NE(table.find(other.option), nullptr) << option.name << " against " << other.option;
    }
  };
  expect_known(train_table(train));
  expect_known(generate_table(generate));
}

TEST(TrainOptions, AResumedRunGoesOnWithItsOwnSettings) {
  const TemporaryFolder folder;
  write_bytes(
      folder / "train.conf",
      "model = qwen\nlr = 0.25\nsteps = 10\nrun = gone\ndata = c.txt\ntrace = t.json\ntrace-steps = 1:3\n"
      "record-routing = r\nrecord-steps = 1:3\nreplay-routing = s\n");
  for (const char* where : {"", "checkpoint-5", "checkpoint-5/"}) {
    const TrainOptions read = parse({"--resume", (folder / where).string(), "--steps", "20"});
    EXPECT_EQ(read.optimizer.learning_rate, 0.25);
    EXPECT_EQ(read.run.steps, 20);
    EXPECT_EQ(sources_text(read.data.sources), "c.txt");
    EXPECT_TRUE(read.model.folder.empty());
    EXPECT_TRUE(read.run.trace.file.empty()) << "it would replace the trace of other steps";
    EXPECT_FALSE(read.run.trace.steps);
    EXPECT_EQ(read.run.routing.record, "r") << "it goes on";
    EXPECT_EQ(read.run.routing.record_steps->to, 3);
    EXPECT_EQ(read.run.routing.replay, "s");
    EXPECT_TRUE(std::filesystem::equivalent(read.run.folder, folder.path())) << where;
  }
  const TrainOptions other = parse({"--resume", folder.path().string(), "--run", "other"});
  EXPECT_EQ(other.run.folder, "other");
  EXPECT_TRUE(other.run.routing.record.empty()) << "the first run keeps its recording";
  EXPECT_FALSE(other.run.routing.record_steps);
  EXPECT_EQ(other.run.routing.replay, "s");
}

TEST(TrainOptions, AResumedRunOwesTheExportThatItHasNotMade) {
  const TemporaryFolder folder;
  const std::filesystem::path made = folder / "made";
  write_bytes(folder / "train.conf", "export = " + made.string() + "\nexport-dtype = bf16\n");
  const auto resumed = [&](Words more) {
    more.insert(more.end(), {"--resume", folder.path().string()});
    return parse(more).run;
  };
  EXPECT_EQ(resumed({}).export_folder, made);
  EXPECT_EQ(resumed({}).export_dtype, DType::kBF16);
  EXPECT_EQ(resumed({"--export-dtype", "fp32"}).export_dtype, DType::kF32);
  std::filesystem::create_directory(made);
  write_bytes(made / "config.json", "{}");
  EXPECT_TRUE(resumed({}).export_folder.empty());
  EXPECT_EQ(resumed({}).export_dtype, DType::kF32) << "without an export it has no say";
  EXPECT_EQ(resumed({"--export", "other"}).export_dtype, DType::kBF16);
}

TEST(TrainOptions, TheCommandLineAnswersWhereTheModelComesFrom) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.conf", "model = qwen\n");
  write_bytes(folder / "b.conf", "layers = 2\nresume = old\n");
  const TrainOptions resumed = parse({"--resume", "runs/x", "--config", (folder / "a.conf").string()});
  EXPECT_TRUE(resumed.model.folder.empty());
  const TrainOptions loaded = parse({"--model", "qwen", "--config", (folder / "b.conf").string()});
  EXPECT_TRUE(loaded.model.shape_given.empty());
  EXPECT_TRUE(loaded.run.resume.empty());
}

}  // namespace
}  // namespace moeloom
