// Whole folders in FP8: read to the numbers, and written as bf16 with what they carry.
#include "model/hf/convert/convert.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "hf/family_models.hpp"
#include "hf/fp8_files.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/on_one_rank.hpp"
#include <gtest/gtest.h>

namespace moeloom::fp8_models_test {
namespace {

using testing::StoredPart;
using testing::TemporaryFolder;

class Fp8Models : public testing::OnOneRank {};

constexpr Index kRows = 16,
                kCols = 10;  // of a block; few sizes are multiples of them, and no half leaves most of one

std::vector<Index> scales_of(std::vector<Index> shape) {
  Index& rows = shape[shape.size() - 2];
  rows = (rows + kRows - 1) / kRows;
  shape.back() = (shape.back() + kCols - 1) / kCols;
  return shape;
}

bool is_quantized(const TensorSpec& spec) {
  return spec.shape.size() > 1 && spec.name.find("proj") != std::string::npos;
}

/// Element i of a tensor, as this file writes it.
float number(const TensorSpec& spec, Index i) {
  if (!is_quantized(spec)) return testing::scale_number(DType::kBF16, i);
  const Index cols = spec.shape.back(), rows = spec.shape[spec.shape.size() - 2];
  const Index down = (rows + kRows - 1) / kRows, across = (cols + kCols - 1) / kCols;
  const Index matrix = i / cols / rows, row = i / cols % rows, col = i % cols;
  return testing::fp8_number(DType::kF8E4M3, i) *
         testing::scale_number(DType::kF32, (matrix * down + row / kRows) * across + col / kCols);
}

void add(std::vector<StoredPart>& parts, const TensorSpec& spec) {
  if (!is_quantized(spec)) return parts.push_back({spec.name, DType::kBF16, spec.shape});
  parts.push_back({spec.name, DType::kF8E4M3, spec.shape});
  parts.push_back({spec.name + "_scale_inv", DType::kF32, scales_of(spec.shape)});
}

const std::string kSaid = R"({"quant_method": "fp8", "weight_block_size": [16, 10]})";

/// With `more` beside the model -> as it is read.
ModelConfig write_folder(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<TensorSpec>& more = {}) {
  Document document = config.source;
  document.set("quantization_config", Document::parse(kSaid, "test"));
  document.write(folder / "config.json");
  std::vector<StoredPart> parts;
  for (const TensorSpec& spec : tensor_specs(config)) add(parts, spec);
  for (const TensorSpec& spec : more) add(parts, spec);
  testing::write_parts(folder, parts);
  return ModelConfig::read(folder);
}

/// As train would leave it that changes nothing.
void pass_through(const std::filesystem::path& source, const ModelConfig& config,
                  const std::filesystem::path& target) {
  const Mesh mesh(Communicator::self(), {});
  ParameterStore store(parameter_specs(config, {0, std::max<Index>(config.num_experts, 1)}));
  load_weights(store, SafetensorsFolder(source), config);
  save_weights(store, config, mesh, target, {.dtype = DType::kBF16});
}

void expect_numbers(const SafetensorsFolder& folder, const std::vector<TensorSpec>& specs) {
  ASSERT_EQ(folder.names().size(), specs.size());
  for (const TensorSpec& spec : specs) {
    ASSERT_EQ(folder.info(spec.name).shape, spec.shape) << spec.name;
    const std::vector<float> found = folder.file_of(spec.name).floats(spec.name);
    for (Index i = 0; i < std::ssize(found); ++i)
      ASSERT_EQ(found[at(i)], bf16_to_float(float_to_bf16(number(spec, i)))) << spec.name << ' ' << i;
  }
}

TEST_F(Fp8Models, OfEveryFamilyAreReadToTheNumbersAndWrittenWithoutScales) {
  for (const Family& family : families()) {
    if (!family.refusal.empty()) continue;
    SCOPED_TRACE(family.model_type);
    const TemporaryFolder source, trained, converted;
    const ModelConfig config = write_folder(source.path(), testing::family_model(family));
    pass_through(source.path(), config, trained.path());
    expect_numbers(SafetensorsFolder(trained.path()), tensor_specs(config));
    const SafetensorsFolder tensors(source.path());
    write_recipes(tensors, copies_of(tensors, config), converted.path(), {.stored = config.stored});
    expect_numbers(SafetensorsFolder(converted.path()), tensor_specs(config));
    for (const Document& written : {config.to_document(DType::kBF16), config.updated_source()})
      EXPECT_FALSE(written.has("quantization_config"));
  }
}

TEST_F(Fp8Models, AreCountedAndRestInBf16) {
  const TemporaryFolder source;
  const ModelConfig config = write_folder(source.path(), testing::model("qwen3_moe"));
  const SafetensorsFolder tensors(source.path());
  const auto specs = tensor_specs(config);
  const Index scaled = std::ranges::count_if(specs, is_quantized);
  const WeightCoverage coverage = check_weights(tensors, config);
  EXPECT_EQ(coverage.found, std::ssize(specs));
  EXPECT_EQ(coverage.scales, scaled);
  EXPECT_GT(scaled, 4 * 3 * 4);  // of experts alone
  ASSERT_EQ(config.remarks.size(), 1u);
  EXPECT_EQ(config.remarks[0],
            std::to_string(scaled) +
                " tensors are in FP8 with a scale for each block of [16, 10]: "
                "they are read as numbers times scales, and written without quantization_config");
  EXPECT_EQ(resting_storage(tensors, config), Storage::kBf16);
}

TEST_F(Fp8Models, BecomeTheSameStacksInAnotherLayout) {
  const TemporaryFolder source, stacked, again;
  const ModelConfig config = write_folder(source.path(), testing::model("qwen3_moe"));
  const SafetensorsFolder tensors(source.path());
  write_recipes(tensors, in_layout(copies_of(tensors, config), ExpertFiles::kStacked, "qwen3_moe"),
                stacked.path(), {.stored = config.stored});
  const SafetensorsFolder stacks(stacked.path());
  EXPECT_EQ(stacks.info("model.layers.0.mlp.experts.gate_up_proj").dtype, DType::kBF16);
  write_recipes(stacks, in_layout(copies_of(stacks), ExpertFiles::kList, "qwen3_moe"), again.path(), {});
  expect_numbers(SafetensorsFolder(again.path()), tensor_specs(config));
}

TEST_F(Fp8Models, CarryTensorsInFp8AsBf16WithoutTheirScales) {
  const TemporaryFolder source, trained, converted;
  const std::vector<TensorSpec> more = {{"model.layers.4.eh_proj.weight", DType::kF32, {25, 33}},
                                        {"model.layers.4.enorm.weight", DType::kF32, {7}},
                                        {"model.layers.4.mlp.experts.0.up_proj.weight", DType::kF32, {3, 2}}};
  const ModelConfig config = write_folder(source.path(), testing::model("deepseek_v3"), more);
  EXPECT_EQ(config.names.carried.names.size(), more.size());
  EXPECT_NE(config.remarks.at(0).find("3 tensors beside the model (model.layers.4.*: 3)"), std::string::npos);
  EXPECT_EQ(check_weights(SafetensorsFolder(source.path()), config).carried, 3);
  auto specs = tensor_specs(config);
  specs.insert(specs.end(), more.begin(), more.end());
  pass_through(source.path(), config, trained.path());
  expect_numbers(SafetensorsFolder(trained.path()), specs);
  EXPECT_EQ(SafetensorsFolder(trained.path()).info(more[0].name).dtype, DType::kBF16);
  const SafetensorsFolder tensors(source.path());
  write_recipes(tensors, copies_of(tensors, config), converted.path(), {.stored = config.stored});
  expect_numbers(SafetensorsFolder(converted.path()), specs);
}

TEST_F(Fp8Models, PassOverScalesOfActivations) {
  const TemporaryFolder source, trained;
  const std::vector<TensorSpec> more = {{"model.layers.0.self_attn.q_proj.input_scale", DType::kF32, {1}},
                                        {"model.layers.0.self_attn.k_scale", DType::kF32, {}}};
  const ModelConfig config = write_folder(source.path(), testing::model("qwen3_moe"), more);
  const WeightCoverage coverage = check_weights(SafetensorsFolder(source.path()), config);
  EXPECT_EQ(coverage.of_activations, 2);
  EXPECT_TRUE(coverage.unused.empty());
  EXPECT_NE(config.remarks.at(1).find("2 tensors with scales of activations or caches are passed over"),
            std::string::npos);
  pass_through(source.path(), config, trained.path());
  expect_numbers(SafetensorsFolder(trained.path()), tensor_specs(config));
}

TEST_F(Fp8Models, AreRefusedWithEveryTensorThatIsWrong) {
  const TemporaryFolder folder;
  const std::string carried = "model.layers.4.eh_proj.weight";
  const ModelConfig config = testing::model("deepseek_v3");
  std::vector<StoredPart> parts;
  for (const TensorSpec& spec : tensor_specs(config)) add(parts, spec);
  const std::string o = "model.layers.0.self_attn.o_proj.weight",
                    down = "model.layers.1.self_attn.o_proj.weight";
  std::erase_if(parts, [&](const StoredPart& part) { return part.name == o + "_scale_inv"; });
  for (StoredPart& part : parts)
    if (part.name == down + "_scale_inv") part.shape = {1, 2};
  parts.push_back({carried, DType::kF8E4M3, {2, 2}});
  testing::write_parts(folder.path(), parts);
  Document document = config.source;
  const auto refusal = [&] {
    document.write(folder / "config.json");
    return testing::message_of<ConfigError>(
        [&] { check_weights(SafetensorsFolder(folder.path()), ModelConfig::read(folder.path())); });
  };
  const std::string plain = refusal();
  EXPECT_NE(plain.find("config.json has no quantization_config of FP8"), std::string::npos) << plain;
  document.set("quantization_config", Document::parse(kSaid, "test"));
  const std::string text = refusal();
  EXPECT_NE(text.find("(3 tensors differ)"), std::string::npos) << text;
  EXPECT_NE(text.find("tensor " + o + ": is F8_E4M3 "), std::string::npos) << text;
  EXPECT_NE(text.find("tensor " + down + "_scale_inv: expected "), std::string::npos) << text;
  EXPECT_NE(text.find("tensor " + carried + ": is F8_E4M3 [2,2], and its scales are missing"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace moeloom::fp8_models_test
