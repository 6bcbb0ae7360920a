#include "model/hf/weights/weights_io.hpp"

#include "model/hf/convert/convert.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <functional>

#include "support/golden.hpp"
#include "support/shared_folder.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::all_meshes;
using testing::experts_here;
using testing::small_config;
using testing::TemporaryFolder;

constexpr std::uint64_t kSeed = 5;

ModelConfig tiny_config() {
  ModelConfig config = small_config();
  config.vocab_size = 3;
  return config;
}

bool is_qwen3_moe(const std::filesystem::path& folder) {
  return testing::golden_class(folder) == "Qwen3MoeForCausalLM";
}

struct Tensor {
  std::vector<Index> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

Tensors tensors_of(const ModelConfig& config) {
  Tensors tensors;
  float value = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    Index elements = 1;
    for (const Index size : spec.shape) elements *= size;
    Tensor& tensor = tensors[spec.name];
    tensor.shape = spec.shape;
    for (Index i = 0; i < elements; ++i) tensor.values.push_back(value += 0.5f);
  }
  return tensors;
}

void write_tensors(const Tensors& tensors, const std::filesystem::path& folder) {
  std::vector<TensorSpec> specs;
  std::vector<std::span<const float>> values;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, DType::kF32, tensor.shape});
    values.emplace_back(tensor.values);
  }
  write_safetensors(folder / "model.safetensors", specs, values);
}

std::string refusal(const std::filesystem::path& folder, const ModelConfig& config) {
  try {
    check_weights(SafetensorsFolder(folder), config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LoadWeights, ReadsEveryValueOfGoldenModels) {
  for (const auto& folder : testing::golden_cases("models", is_qwen3_moe)) {
    const ModelConfig config = ModelConfig::read(folder);
    const SafetensorsFile file(folder / "model.safetensors");
    for (const Index ep : {1, 3, 4}) {
      for (Index rank = 0; rank < ep; ++rank) {
        ParameterStore store(parameter_specs(config, experts_of(config.num_experts, ep, rank)));
        const std::uint64_t version = store.version();
        const WeightCoverage coverage = load_weights(store, SafetensorsFolder(folder), config);
        EXPECT_EQ(coverage.found, static_cast<Index>(file.tensors().size()));
        EXPECT_EQ(coverage.expected, coverage.found);
        EXPECT_TRUE(coverage.unused.empty());
        EXPECT_GT(store.version(), version);
        for (const Parameter& parameter : store.parameters())
          for (const HfSlice& slice : parameter.spec.slices) {
            const auto part = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
            EXPECT_EQ(std::vector<float>(part.begin(), part.end()), file.floats(slice.name)) << slice.name;
          }
      }
    }
  }
}

TEST(LoadWeights, ListsEveryTensorThatDoesNotFit) {
  using Edit = std::function<void(Tensors&)>;
  const std::string up = "model.layers.0.mlp.experts.4.up_proj.weight";
  const struct {
    Edit edit;
    std::vector<std::string> expected;
  } cases[] = {
      {[](Tensors&) {}, {}},
      {[&](Tensors& t) { t.erase(up); }, {"tensor " + up + ": missing, expected [6,8]"}},
      {[&](Tensors& t) {
         t[up].shape = {8, 6};
       },
       {"tensor " + up + ": expected [6,8], found [8,6]"}},
      {[](Tensors& t) {
         t["model.norm.weight"].shape = {1, 8};
       },
       {"tensor model.norm.weight: expected [8], found [1,8]"}},
      {[](Tensors& t) {
         t["model.norm.bias"] = {{1}, {0}};
       },
       {"tensor model.norm.bias: unexpected, found [1]"}},
      {[&](Tensors& t) {
         t["lm_head.bias"] = {{1}, {0}};
         t.erase("lm_head.weight");
         t[up].shape = {48};
       },
       {"lm_head.bias: unexpected", "lm_head.weight: missing, expected [3,8]",
        up + ": expected [6,8], found [48]", "3 tensors differ"}},
      {[](Tensors& t) {
         t.clear(), t["x"] = {{1}, {0}};
       },
       {"tensors differ", "and ", " more"}},
  };
  const ModelConfig config = tiny_config();
  for (const auto& c : cases) {
    const testing::TemporaryFolder folder;
    Tensors tensors = tensors_of(config);
    c.edit(tensors);
    write_tensors(tensors, folder.path());
    const std::string text = refusal(folder.path(), config);
    EXPECT_EQ(text.empty(), c.expected.empty()) << text;
    for (const std::string& part : c.expected) EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(LoadWeights, LeavesMissingTensorsThatAreAllowedAsTheyWere) {
  const ModelConfig config = tiny_config();
  const testing::TemporaryFolder folder;
  Tensors tensors = tensors_of(config);
  tensors.erase("model.norm.weight");
  tensors.erase("model.layers.0.mlp.experts.4.up_proj.weight");
  tensors["visual.patch.weight"] = {{1}, {0}};
  write_tensors(tensors, folder.path());
  const SafetensorsFolder set(folder.path());
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  for (const Placement placement : kPlacements) std::ranges::fill(store.values(placement), -1.0f);
  const WeightCoverage coverage =
      load_weights(store, set, config, {"model.norm.weight", "*.experts.4.*", "visual.*"});
  EXPECT_EQ(coverage.missing,
            (std::vector<std::string>{"model.layers.0.mlp.experts.4.up_proj.weight", "model.norm.weight"}));
  EXPECT_EQ(coverage.unused, (std::vector<std::string>{"visual.patch.weight"}));
  EXPECT_EQ(coverage.found + 2, coverage.expected);
  Index left = 0;
  for (const Placement placement : kPlacements) left += std::ranges::count(store.values(placement), -1.0f);
  EXPECT_EQ(left, config.hidden_size + config.moe_intermediate_size * config.hidden_size);
}

TEST(LoadWeights, RefusesExceptionsThatExcuseNothing) {
  const ModelConfig config = tiny_config();
  const testing::TemporaryFolder folder;
  write_tensors(tensors_of(config), folder.path());
  try {
    check_weights(SafetensorsFolder(folder.path()), config, {"model.norm.*"});
    FAIL() << "nothing is missing";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("pattern \"model.norm.*\": no missing"), std::string::npos)
        << error.what();
  }
}

TEST(LoadWeights, ShowsTwentyComplaintsAndCountsTheRest) {
  const testing::TemporaryFolder folder;
  write_tensors({{"x", {{1}, {0}}}}, folder.path());
  const std::string text = refusal(folder.path(), tiny_config());
  const std::size_t all = tensor_specs(tiny_config()).size() + 1;
  EXPECT_EQ(std::ranges::count(text, '\n'), 22) << text;  // a heading, twenty, the rest and the way round
  EXPECT_NE(text.find("and " + std::to_string(all - 20) + " more"), std::string::npos) << text;
  EXPECT_NE(text.find("no name of the folder is one of qwen3_moe's"), std::string::npos) << text;
}

TEST(LoadWeights, TakesTheEmbeddingForATiedHeadAndNamesTheStoredCopy) {
  ModelConfig config = tiny_config();
  const testing::TemporaryFolder folder;
  write_tensors(tensors_of(config), folder.path());
  config.tie_word_embeddings = true;
  EXPECT_EQ(check_weights(SafetensorsFolder(folder.path()), config).unused,
            (std::vector<std::string>{"lm_head.weight"}));
}

/// Of tied tables some folders keep the head alone. A copy has the table's own name, which both versions
/// read.
TEST(LoadWeights, TakesATiedHeadForTheEmbeddingThatIsNotThere) {
  ModelConfig config = tiny_config();
  config.tie_word_embeddings = true;
  const testing::TemporaryFolder folder, copy;
  std::vector<TensorSpec> specs = tensor_specs(config);
  std::vector<std::vector<float>> numbers;
  for (TensorSpec& spec : specs) {
    Index count = 1;
    for (const Index size : spec.shape) count *= size;
    numbers.emplace_back(static_cast<std::size_t>(count), static_cast<float>(numbers.size()));
    if (spec.name == "model.embed_tokens.weight") {
      spec.name = "lm_head.weight";
      numbers.back().assign(numbers.back().size(), 0.5f);
    }
  }
  // Frequencies that older versions stored are nobody's.
  specs.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4}});
  numbers.emplace_back(4, 1.0f);
  write_safetensors(folder / kWeightsFile, specs, {numbers.begin(), numbers.end()});
  const SafetensorsFolder source(folder.path());
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  const WeightCoverage coverage = load_weights(store, source, config);
  EXPECT_EQ(coverage.found, coverage.expected);
  EXPECT_TRUE(coverage.unused.empty());
  EXPECT_EQ(store.find("model.embed_tokens.weight").value(1, 2), 0.5f);
  EXPECT_EQ(resting_storage(source, config), Storage::kFp32);
  write_recipes(source, copies_of(source, config), copy.path(), {});
  const SafetensorsFolder written(copy.path());
  EXPECT_EQ(written.names().size(), tensor_specs(config).size());
  EXPECT_TRUE(written.has("model.embed_tokens.weight"));
  EXPECT_FALSE(written.has("lm_head.weight"));
  EXPECT_EQ(check_weights(written, config).found, coverage.expected);
}

TEST(LoadWeights, SaysTheWholeValueThatPassesOverWhatDiffers) {
  const ModelConfig config = tiny_config();
  const testing::TemporaryFolder folder;
  Tensors tensors = tensors_of(config);
  tensors.erase("model.norm.weight");
  tensors["more"] = {{1}, {1}};
  write_tensors(tensors, folder.path());
  EXPECT_NE(refusal(folder.path(), config).find("tensors that may be missing = model.norm.weight,more"),
            std::string::npos)
      << refusal(folder.path(), config);
}

TEST(LoadWeights, ReadsHalfPrecisionAndRefusesIntegers) {
  const ModelConfig config = tiny_config();
  const struct {
    DType type;
    std::uint16_t bits;
    float value;
  } cases[] = {{DType::kBF16, 0x3FC0, 1.5f}, {DType::kF16, 0x3E00, 1.5f}, {DType::kI32, 0, 0.0f}};
  for (const auto& c : cases) {
    std::vector<TensorSpec> specs = tensor_specs(config);
    for (TensorSpec& spec : specs) spec.dtype = c.type;
    const SafetensorsLayout layout = plan_safetensors(specs, {});
    std::string bytes = layout.header;
    while (static_cast<Index>(bytes.size()) < layout.file_bytes) bytes += testing::bytes_of_number(c.bits);
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder / "model.safetensors", bytes);
    if (c.type == DType::kI32) {
      EXPECT_NE(refusal(folder.path(), config).find("expected F32, BF16 or F16, found I32"),
                std::string::npos);
      continue;
    }
    ParameterStore store(parameter_specs(config, {0, config.num_experts}));
    load_weights(store, SafetensorsFolder(folder.path()), config);
    for (const Placement placement : kPlacements)
      for (const float value : store.values(placement)) ASSERT_EQ(value, c.value);
  }
}

TEST(SaveWeights, WritesTheSameFileFromEveryMesh) {
  const Communicator world = Communicator::world();
  const testing::SharedFolder folder(world);
  const ModelConfig config = small_config();
  ParameterStore whole(parameter_specs(config, {0, config.num_experts}));
  initialise(whole, config, kSeed);
  Index number = 0;
  for (const MeshShape& shape : all_meshes(world.size())) {
    const Mesh mesh(Communicator::world(), shape);
    ParameterStore store(parameter_specs(config, experts_here(config, mesh)));
    initialise(store, config, kSeed);
    const auto path = folder.path() / std::to_string(number++);
    if (world.rank() == 0) std::filesystem::create_directory(path);
    world.barrier();
    save_weights(store, config, mesh, path);
    const SafetensorsFile file(path / "model.safetensors");
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.tensors().size(), tensor_specs(config).size());
    for (const Parameter& parameter : whole.parameters())
      for (const HfSlice& slice : parameter.spec.slices) {
        const auto part = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
        EXPECT_EQ(std::vector<float>(part.begin(), part.end()), file.floats(slice.name)) << slice.name;
      }
  }
}

/// A model as initialise() makes it, its experts shared by all ranks.
struct InitialModel {
  explicit InitialModel(const ModelConfig& config)
      : mesh(Communicator::world(), {1, Communicator::world().size(), {"dp", "ep"}}),
        store(parameter_specs(config, experts_here(config, mesh))) {
    initialise(store, config, kSeed);
  }
  Mesh mesh;
  ParameterStore store;
};

TEST(SaveWeights, WritesShardsThatReadBackAsOneSet) {
  const Communicator world = Communicator::world();
  const testing::SharedFolder folder(world);
  const ModelConfig config = tiny_config();
  auto [mesh, store] = InitialModel(config);
  save_weights(store, config, mesh, folder.path(), {.shard_bytes = 1000, .dtype = DType::kF32});
  const SafetensorsFolder shards(folder.path());
  EXPECT_GT(shards.files().size(), 3u);
  EXPECT_EQ(shards.names().size(), tensor_specs(config).size());
  ParameterStore again(parameter_specs(config, experts_here(config, mesh)));
  EXPECT_EQ(load_weights(again, shards, config).found, std::ssize(tensor_specs(config)));
  for (const Placement placement : kPlacements)
    EXPECT_TRUE(std::ranges::equal(again.values(placement), store.values(placement)));
}

TEST(SaveWeights, RoundsToHalfPrecisionWhereAsked) {
  const Communicator world = Communicator::world();
  const testing::SharedFolder folder(world);
  const ModelConfig config = tiny_config();
  const auto [mesh, store] = InitialModel(config);
  save_weights(store, config, mesh, folder.path(), {.shard_bytes = kShardBytes, .dtype = DType::kBF16});
  const SafetensorsFolder half(folder.path());
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      ASSERT_EQ(half.info(slice.name).dtype, DType::kBF16);
      std::vector<float> read(static_cast<std::size_t>(slice.rows * parameter.spec.cols));
      half.read(slice.name, 0, read);
      const auto part = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
      for (std::size_t i = 0; i < read.size(); ++i)
        ASSERT_EQ(read[i], bf16_to_float(float_to_bf16(part[i]))) << slice.name;
    }
}

TEST(SaveWeights, KeepsTheBiasThatChoosesExpertsInFp32) {
  const ModelConfig config = testing::deepseek_config();
  Index biases = 0;
  for (const TensorSpec& spec : tensor_specs(config, DType::kBF16)) {
    const bool is_bias = spec.name.ends_with("mlp.gate.e_score_correction_bias");
    biases += is_bias ? 1 : 0;
    EXPECT_EQ(spec.dtype, is_bias ? DType::kF32 : DType::kBF16) << spec.name;
  }
  EXPECT_EQ(biases, config.num_hidden_layers - 1);
}

/// Every golden model whose config can be read today.
std::vector<std::filesystem::path> readable_models() {
  return testing::golden_cases("models", [](const std::filesystem::path& folder) {
    try {
      ModelConfig::read(folder);
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  });
}

TEST(SaveWeights, ImportAndExportKeepEveryBitOfGoldenModels) {
  const Communicator world = Communicator::world();
  for (const auto& golden : readable_models()) {
    const ModelConfig config = ModelConfig::read(golden);
    const testing::SharedFolder folder(world);
    const Mesh mesh(Communicator::world(), {1, world.size(), {"dp", "ep"}});
    ParameterStore store(parameter_specs(
        config, experts_of(std::max<Index>(config.num_experts, 1), world.size(), world.rank())));
    const SafetensorsFolder imported(golden);
    load_weights(store, imported, config);
    save_weights(store, config, mesh, folder.path());
    const SafetensorsFolder exported(folder.path());
    ASSERT_EQ(exported.names(), imported.names()) << golden;
    for (const std::string& name : imported.names()) {
      EXPECT_EQ(exported.info(name).shape, imported.info(name).shape) << golden << name;
      EXPECT_TRUE(std::ranges::equal(exported.file_of(name).raw(name), imported.file_of(name).raw(name)))
          << golden << name;
    }
  }
}

TEST(SaveWeights, FailsOnEveryRankTogether) {
  const Communicator world = Communicator::world();
  const testing::SharedFolder folder(world);
  const ModelConfig config = tiny_config();
  const Mesh mesh(Communicator::world(), {1, world.size(), {"dp", "ep"}});
  const ParameterStore store(parameter_specs(config, experts_here(config, mesh)));
  try {
    save_weights(store, config, mesh, folder.path() / "absent");
    FAIL() << "there is no such folder";
  } catch (const AgreedError& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moeloom
