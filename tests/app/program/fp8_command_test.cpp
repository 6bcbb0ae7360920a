// A folder in FP8 beside one with the same numbers in fp32: every command sees one model.
#include "io/safetensors_shards.hpp"
#include "moeloom/io/document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "program/command_line.hpp"
#include "record/exit_code.hpp"
#include "record/metrics.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::fp8_command_test {
namespace {

namespace fs = std::filesystem;

using testing::Outcome;

constexpr Index kBlock = 12;  // which divides no size of the model

/// The byte whose number in E4M3 is nearest.
std::uint8_t nearest(float value) {
  int best = 0;
  for (int code = 1; code < 256; ++code) {
    if (code % 128 == 127) continue;
    const auto distance = [&](int of) {
      return std::abs(f8_e4m3_to_float(static_cast<std::uint8_t>(of)) - value);
    };
    if (distance(code) < distance(best)) best = code;
  }
  return static_cast<std::uint8_t>(best);
}

/// A matrix as bytes and scales, powers of two so that bf16 holds each product, and those products.
struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, products;
};

Quantized quantized(const std::vector<float>& values, Index cols) {
  const Index rows = std::ssize(values) / cols, across = (cols + kBlock - 1) / kBlock;
  Quantized result;
  for (Index i = 0; i < (rows + kBlock - 1) / kBlock * across; ++i)
    result.scales.push_back(std::ldexp(1.0f, -9 - static_cast<int>(i % 3)));
  for (Index i = 0; i < std::ssize(values); ++i) {
    const float scale = result.scales[at(i / cols / kBlock * across + i % cols / kBlock)];
    result.codes.push_back(nearest(values[at(i)] / scale));
    result.products.push_back(f8_e4m3_to_float(result.codes.back()) * scale);
  }
  return result;
}

bool is_quantized(const std::string& name) {
  return name.ends_with("_proj.weight");
}

/// Of a folder in fp32 one in FP8 and one with its products.
void write_both(const fs::path& from, const fs::path& fp8, const fs::path& plain) {
  const SafetensorsFolder before(from);
  std::vector<TensorSpec> of_fp8, of_plain;
  for (const std::string& name : before.names()) {
    const TensorInfo& info = before.info(name);
    of_plain.push_back({name, DType::kF32, info.shape});
    of_fp8.push_back({name, is_quantized(name) ? DType::kF8E4M3 : DType::kBF16, info.shape});
    if (!is_quantized(name)) continue;
    const Index down = (info.shape[0] + kBlock - 1) / kBlock, across = (info.shape[1] + kBlock - 1) / kBlock;
    of_fp8.push_back({name + "_scale_inv", DType::kF32, {down, across}});
  }
  Document config = Document::read(from / "config.json");
  for (const auto& [folder, specs] : {std::pair{fp8, of_fp8}, {plain, of_plain}}) {
    fs::create_directory(folder);
    const ShardPlan plan = plan_shards(specs);
    create_shards(folder, plan);
    ShardWriter writer(folder, plan);
    for (const std::string& name : before.names()) {
      std::vector<float> values = before.file_of(name).floats(name);
      for (float& value : values) value = bf16_to_float(float_to_bf16(value));
      if (!is_quantized(name)) {
        writer.write(name, 0, values);
        continue;
      }
      const Quantized matrix = quantized(values, before.info(name).shape[1]);
      if (folder == plain) {
        writer.write(name, 0, matrix.products);
        continue;
      }
      writer.write_bytes(name, 0, std::as_bytes(std::span(matrix.codes)));
      writer.write(name + "_scale_inv", 0, matrix.scales);
    }
    writer.close();
  }
  config.write(plain / "config.json");
  config.set("quantization_config",
             Document::parse(R"({"quant_method": "fp8", "weight_block_size": [12, 12]})", "test"));
  config.write(fp8 / "config.json");
}

class Fp8Command : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 300; ++i) text << "And the weaver drew thread " << i * i % 89 << ".\n";
    const std::string shape =
        "--layers 2 --hidden 16 --inter 20 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2 ";
    ASSERT_EQ(shell(train(shape + "--steps 8 --lr 1e-2 --run " + path("start") + " --export " + path("base")))
                  .exit_code,
              0);
    write_both(path("base"), path("fp8"), path("plain"));
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome shell(const std::string& words, int ranks = 1) const {
    return testing::moeloom_command(words, ranks, path("cache"));
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
  /// Losses of three steps from a folder.
  std::vector<double> losses(const std::string& model, const std::string& flags, int ranks) const {
    const std::string run = path(model + "-run" + std::to_string(ranks) + std::to_string(flags.size()));
    const Outcome outcome =
        shell(train("--steps 3 --model " + path(model) + " --run " + run + " " + flags), ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    std::vector<double> all;
    for (const StepMetrics& step : read_metrics(fs::path(run) / "metrics.jsonl")) all.push_back(step.loss);
    return all;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Fp8Command, TrainsAsTheSameNumbersInFp32DoOnRanksAndBesideAnAdapter) {
  for (const std::string flags : {"", "--lora r=2,alpha=4"})
    for (const int ranks : {1, 2}) {
      const std::vector<double> found = losses("fp8", flags + (ranks > 1 ? " --ep 2" : ""), ranks);
      EXPECT_EQ(found.size(), 3u);
      EXPECT_EQ(found, losses("plain", flags + (ranks > 1 ? " --ep 2" : ""), ranks)) << flags << ranks;
    }
}

TEST_F(Fp8Command, IsInspectedAskedAndConvertedWithoutScales) {
  const Outcome inspected = shell("inspect " + path("fp8"), 0);
  const auto names = SafetensorsFolder(path("fp8")).names();
  const std::string count = std::to_string(std::ranges::count_if(names, is_quantized));
  expect_says(inspected, 0,
              count + " tensors are in FP8 with a scale for each block of [12, 12]: they are read as");
  expect_says(
      inspected, 0,
      "0 unused, 0 carried\n  and " + count + " with scales of those in FP8, 0 with scales of activations");
  const std::string ask = "generate --tokens 12 --temperature 0 --prompt And --model ";
  const auto last_line = [](const std::string& text) { return text.substr(text.rfind("And")); };
  EXPECT_EQ(last_line(shell(ask + path("fp8")).output), last_line(shell(ask + path("plain")).output));
  for (const std::string source : {"fp8", "plain"})
    expect_says(shell("convert " + path(source) + " " + path(source + "-bf16") + " --export-dtype bf16", 0),
                0, source == "fp8" ? "from " + path("fp8") : "-bf16: qwen3_moe, ");
  EXPECT_EQ(testing::read_bytes(path("fp8-bf16/model.safetensors")),
            testing::read_bytes(path("plain-bf16/model.safetensors")));
  const Document config = Document::read(path("fp8-bf16") + "/config.json");
  EXPECT_FALSE(config.has("quantization_config"));
  EXPECT_EQ(config.text(config.has("dtype") ? "dtype" : "torch_dtype"), "bfloat16");
}

TEST_F(Fp8Command, IsRefusedWhereTheConfigDoesNotSayWhatItsScalesAreOf) {
  fs::copy_file(path("plain/config.json"), path("fp8/config.json"), fs::copy_options::overwrite_existing);
  for (const std::string command : {"inspect ", "generate --tokens 1 --prompt And --model "})
    expect_says(shell(command + path("fp8"), 0), kDataExitCode,
                R"(add "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})");
}

}  // namespace
}  // namespace moeloom::fp8_command_test
