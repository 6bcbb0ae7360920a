#include "model/hf/weights/adapter.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/random_matrix.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelConfig adapted(const NamePatterns& targets) {
  ModelConfig config = testing::tiny_config();
  config.adapter = resolve_adapter(config, {.rank = 2, .alpha = 3, .targets = targets});
  return config;
}

/// Of a ConfigError that says all of this.
template <typename Action>
void expect_refusal(const Action& action, const std::vector<std::string>& parts) {
  const std::string text = testing::message_of<ConfigError>(action);
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

/// The tensors of adapter_tensor_specs(), with numbers of their own; `without` one of them.
void write_adapter(const ModelConfig& config, const std::filesystem::path& folder,
                   const std::string& without = "", const std::string& more = "") {
  std::vector<TensorSpec> specs = adapter_tensor_specs(config);
  std::erase_if(specs, [&](const TensorSpec& spec) { return spec.name == without; });
  if (!more.empty()) specs.push_back({more, DType::kF32, {2, 24}});
  std::vector<Matrix> values;
  std::vector<std::span<const float>> spans;
  for (const TensorSpec& spec : specs)
    values.push_back(testing::random_matrix(spec.shape[0], spec.shape[1], values.size() + 1));
  for (const Matrix& matrix : values) spans.push_back(matrix.view().flat());
  write_safetensors(folder / kAdapterFile, specs, spans);
  adapter_document(config).write(folder / kAdapterConfigFile);
}

TEST(AdapterSettings, ScaleByTheRankOrByItsRoot) {
  EXPECT_DOUBLE_EQ((AdapterSettings{.rank = 16, .alpha = 32}).scale(), 2);
  EXPECT_DOUBLE_EQ((AdapterSettings{.rank = 16, .alpha = 32, .rank_stabilised = true}).scale(), 8);
}

TEST(Adapter, MeansTheModulesOfItsTargetsAndRefusesTargetsWithoutAny) {
  const auto modules = [](const NamePatterns& targets) { return adapted(targets).adapter->modules; };
  EXPECT_EQ(modules({"attention"}).size(), 3u * 4);
  EXPECT_EQ(modules({"router"}),
            (std::set<std::string>{"model.layers.0.mlp.gate", "model.layers.2.mlp.gate"}));
  EXPECT_EQ(modules({"mlp"}),
            (std::set<std::string>{"model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj",
                                   "model.layers.1.mlp.down_proj"}));
  EXPECT_EQ(modules({"experts"}).size(), 2u * 4 * 3);
  EXPECT_EQ(modules({"*.0.self_attn.q_proj", "*.v_proj"}).size(), 1u + 3);
  EXPECT_EQ(modules({"*.0.mlp.experts.3.up_proj"}).size(), 4u) << "all experts of a layer or none";
  EXPECT_EQ(modules({"all"}).size(), 3u * 4 + 2u + 3u + 2u * 4 * 3);
  EXPECT_EQ(modules({"router", "shared"}), modules({"router"})) << "the model has none to adapt";
  const auto refused = [](const NamePatterns& targets, const std::vector<std::string>& words) {
    expect_refusal([&] { resolve_adapter(testing::tiny_config(), {.targets = targets}); }, words);
  };
  refused({"attention", "*.k"}, {"target \"*.k\" means no linear module"});
  refused({"shared"}, {"targets shared mean nothing", "this model has attention, experts, mlp, router"});
}

TEST(Adapter, HasTheNamesAndShapesOfPeft) {
  const ModelConfig config = adapted({"attention", "experts", "router"});
  std::map<std::string, std::vector<Index>> shapes;
  for (const TensorSpec& spec : adapter_tensor_specs(config)) shapes[spec.name] = spec.shape;
  EXPECT_EQ(shapes.size(), config.adapter->modules.size() * 2);
  const std::string layer = "base_model.model.model.layers.2.";
  using Shape = std::vector<Index>;
  EXPECT_EQ(shapes.at(layer + "self_attn.k_proj.lora_A.weight"), (Shape{2, 24}));
  EXPECT_EQ(shapes.at(layer + "self_attn.k_proj.lora_B.weight"), (Shape{16, 2}));
  EXPECT_EQ(shapes.at(layer + "mlp.experts.3.down_proj.lora_A.weight"), (Shape{2, 20}));
  EXPECT_EQ(shapes.at(layer + "mlp.experts.3.gate_proj.lora_B.weight"), (Shape{20, 2}));
  EXPECT_EQ(shapes.at(layer + "mlp.gate.lora_B.weight"), (Shape{4, 2}));
}

/// PEFT 0.20 drops experts of a pattern beside transformers 5, and loads those of a list.
TEST(Adapter, NamesItsModulesInAList) {
  EXPECT_EQ(adapter_document(adapted({"*.0.self_attn.?_proj", "*.1.mlp.down_proj"})).texts("target_modules"),
            (std::vector<std::string>{"model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.o_proj",
                                      "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                                      "model.layers.1.mlp.down_proj"}));
}

TEST(Adapter, ReadsWhatItWrites) {
  const testing::TemporaryFolder folder;
  const ModelConfig config = adapted({"attention", "experts"});
  write_adapter(config, folder.path());
  EXPECT_TRUE(holds_adapter(folder.path()));
  const AdapterSettings settings = read_adapter_settings(folder.path(), testing::tiny_config());
  EXPECT_EQ(settings.rank, 2);
  EXPECT_EQ(settings.alpha, 3);
  EXPECT_EQ(settings.modules, config.adapter->modules);
  ParameterStore store(parameter_specs(config, {1, 2}));
  load_adapter(store, folder.path(), config);
  const SafetensorsFile file(folder.path() / kAdapterFile);
  const Parameter& a = store.find("model.layers.0.mlp.experts.down_proj.lora_A.0");
  const std::vector<float> second =
      file.floats("base_model.model.model.layers.0.mlp.experts.2.down_proj.lora_A.weight");
  EXPECT_TRUE(std::ranges::equal(a.value.rows_from(2, 2).flat(), second));
}

TEST(Adapter, OfWhichATensorFindsNoPlaceIsRefused) {
  const testing::TemporaryFolder folder;
  const ModelConfig config = adapted({"attention"});
  ParameterStore store(parameter_specs(config, {0, 4}));
  const std::string one = "base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight";
  write_adapter(config, folder.path(), one);
  expect_refusal([&] { load_adapter(store, folder.path(), config); }, {one + ": missing"});
  const std::string other = "base_model.model.model.layers.7.self_attn.o_proj.lora_A.weight";
  write_adapter(config, folder.path(), "", other);
  expect_refusal([&] { load_adapter(store, folder.path(), config); },
                 {other + ": no module of the model has this name"});
  ModelConfig with_lost = config;
  with_lost.adapter->modules.insert("model.layers.7.self_attn.o_proj");
  expect_refusal([&] { adapter_tensor_specs(with_lost); },
                 {"module model.layers.7.self_attn.o_proj: the model has no such weight"});
}

TEST(Adapter, OfAnotherKindIsRefusedByKey) {
  const testing::TemporaryFolder folder;
  const ModelConfig config = adapted({"attention"});
  write_adapter(config, folder.path());
  const auto refused = [&](const std::string& key, const auto& value) {
    Document document = adapter_document(config);
    document.set(key, value);
    document.write(folder.path() / kAdapterConfigFile);
    expect_refusal([&] { read_adapter_settings(folder.path(), testing::tiny_config()); },
                   {"\"" + key + "\": "});
  };
  refused("peft_type", std::string("ADALORA"));
  refused("use_dora", true);
}

/// Experts as gpt_oss has them ([E, in, 2F], gate and up alternating) or as qwen3_5_moe ([E, out, in]).
ModelConfig stacked(ExpertLayout layout, const NamePatterns& targets = {"experts"}) {
  ModelConfig config = testing::tiny_config();
  config.names.experts = layout;
  config.adapter = resolve_adapter(config, {.rank = 2, .alpha = 3, .targets = targets});
  return config;
}

TEST(Adapter, OfAStackHasTheNamesAndShapesOfPeft) {
  const std::string experts = "base_model.model.model.layers.0.mlp.experts.";
  for (const ExpertLayout layout :
       {ExpertLayout::kStacked, ExpertLayout::kStackedTransposed, ExpertLayout::kStackedInterleaved}) {
    std::map<std::string, std::vector<Index>> shapes;
    for (const TensorSpec& spec : adapter_tensor_specs(stacked(layout))) shapes[spec.name] = spec.shape;
    using Shape = std::vector<Index>;
    EXPECT_EQ(shapes.size(), 2u * 2 * 2);
    EXPECT_EQ(shapes.at(experts + "base_layer.lora_A.weight"), (Shape{4 * 2, 24})) << "gate_up_proj";
    EXPECT_EQ(shapes.at(experts + "base_layer.lora_B.weight"), (Shape{40, 2 * 4}));
    EXPECT_EQ(shapes.at(experts + "lora_A.weight"), (Shape{4 * 2, 20})) << "down_proj";
    EXPECT_EQ(shapes.at(experts + "lora_B.weight"), (Shape{24, 2 * 4}));
  }
  const ModelConfig one = stacked(ExpertLayout::kStacked, {"*.experts.gate_up_proj"});
  EXPECT_EQ(adapter_tensor_specs(one).front().name, experts + "lora_A.weight") << "nothing to nest";
  EXPECT_EQ(adapter_document(one).texts("target_parameters"),
            (std::vector<std::string>{"model.layers.0.mlp.experts.gate_up_proj",
                                      "model.layers.2.mlp.experts.gate_up_proj"}));
  EXPECT_TRUE(adapter_document(one).texts("target_modules").empty());
}

/// PEFT's sum over ranks j: delta[e, o, i] = s B[o, j E + e] A[e r + j, i].
TEST(Adapter, OfAStackAddsPeftsProductToEachExpert) {
  const Index experts = 4, rank = 2;
  for (const ExpertLayout layout :
       {ExpertLayout::kStacked, ExpertLayout::kStackedTransposed, ExpertLayout::kStackedInterleaved}) {
    const testing::TemporaryFolder folder;
    const ModelConfig config = stacked(layout, {"attention", "experts"});
    write_adapter(config, folder.path());
    EXPECT_EQ(read_adapter_settings(folder.path(), config).modules, config.adapter->modules);
    ModelConfig plain = config;
    plain.adapter.reset();
    ParameterStore before(parameter_specs(plain, {1, 3})), after(parameter_specs(plain, {1, 3}));
    ParameterStore held(parameter_specs(config, {1, 3}));
    merge_adapter(after, folder.path(), config);
    load_adapter(held, folder.path(), config);
    const SafetensorsFile file(folder.path() / kAdapterFile);
    for (const bool is_down : {false, true}) {
      const std::string name = is_down ? "down_proj" : "gate_up_proj";
      const std::string path =
          "base_model.model.model.layers.2.mlp.experts." + std::string(is_down ? "" : "base_layer.");
      const std::vector<float> a = file.floats(path + "lora_A.weight"),
                               b = file.floats(path + "lora_B.weight");
      const std::string own = "model.layers.2.mlp.experts." + name;
      const MatrixView merged = after.find(own).value, old = before.find(own).value;
      const Index in = merged.cols, out = merged.rows / 3;
      const MatrixView own_a = held.find(own + ".lora_A.0").value, own_b = held.find(own + ".lora_B.0").value;
      for (Index group = 0; group < 3; ++group)
        for (Index row = 0; row < out; ++row) {
          const bool alternates = layout == ExpertLayout::kStackedInterleaved && !is_down;
          const Index in_file = !alternates ? row : row < out / 2 ? 2 * row : 2 * (row - out / 2) + 1;
          for (Index i = 0; i < in; ++i) {
            double expected = 0;
            for (Index j = 0; j < rank; ++j) {
              const float b_file = b[at(in_file * rank * experts + j * experts + group + 1)];
              const float a_file = a[at(((group + 1) * rank + j) * in + i)];
              ASSERT_EQ(own_b(group * out + row, j), b_file);
              ASSERT_EQ(own_a(group * rank + j, i), a_file);
              expected += 1.5 * static_cast<double>(b_file) * a_file;
            }
            const Index at_row = group * out + row;
            ASSERT_NEAR(merged(at_row, i) - old(at_row, i), expected, 1e-5);
          }
        }
    }
  }
}

TEST(Adapter, OfAStackTellsItsTensorsByTheParametersThatItTargets) {
  const testing::TemporaryFolder folder;
  const ModelConfig config = stacked(ExpertLayout::kStacked, {"*.experts.down_proj"});
  write_adapter(config, folder.path());
  const auto modules_of = [&](const std::vector<std::string>& parameters) {
    Document document = adapter_document(config);
    document.set("target_parameters", parameters);
    document.write(folder.path() / kAdapterConfigFile);
    return read_adapter_settings(folder.path(), config).modules;
  };
  const auto both = [](const std::string& name) {
    return std::set<std::string>{"model.layers.0.mlp.experts." + name, "model.layers.2.mlp.experts." + name};
  };
  EXPECT_EQ(modules_of({"mlp.experts.down_proj"}), both("down_proj"));
  EXPECT_EQ(modules_of({"experts.gate_up_proj"}), both("gate_up_proj"));
  expect_refusal(
      [&] {
        modules_of({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"});
      },
      {"could be those of several stacks"});
}

/// Earlier versions of PEFT exchanged in and out, which the shapes of square stacks do not tell.
TEST(Adapter, OfSquareStacksMustSayWhichWayRoundTheyAre) {
  const testing::TemporaryFolder folder;
  ModelConfig config = testing::tiny_config();
  config.names.experts = ExpertLayout::kStacked;
  config.moe_intermediate_size = config.hidden_size;  // down_proj [E, D, D]
  const auto read = [&](const NamePatterns& targets, const std::string& version) {
    config.adapter = resolve_adapter(config, {.rank = 2, .alpha = 3, .targets = targets});
    write_adapter(config, folder.path());
    Document document = adapter_document(config);
    document.set("peft_version", version);
    document.write(folder.path() / kAdapterConfigFile);
    return read_adapter_settings(folder.path(), config);
  };
  for (const std::string version : {"0.20.0.dev0", "1.0", "0.19.1"})
    EXPECT_FALSE(read({"*.experts.down_proj"}, version).turned_stacks);
  for (const std::string version : {"0.19.0", "0.18.1", "", "unknown"}) {
    expect_refusal([&] { read({"*.experts.down_proj"}, version); },
                   {"\"peft_version\" is not 0.19.1 or later", "mlp.experts.down_proj"});
    EXPECT_FALSE(read({"experts"}, version).turned_stacks) << "gate_up_proj tells";
  }
}

TEST(Adapter, MergesItsProductIntoEachModule) {
  const testing::TemporaryFolder folder;
  ModelConfig config = adapted({"attention", "experts"});
  write_adapter(config, folder.path());
  ModelConfig plain = config;
  plain.adapter.reset();
  ParameterStore before(parameter_specs(plain, {2, 2})), after(parameter_specs(plain, {2, 2}));
  initialise(before, plain, 1);
  initialise(after, plain, 1);
  merge_adapter(after, folder.path(), config);
  const SafetensorsFile file(folder.path() / kAdapterFile);
  const auto difference = [&](const std::string& name, Index row, Index col) {
    return static_cast<double>(after.find(name).value(row, col)) - before.find(name).value(row, col);
  };
  const auto expected = [&](const std::string& module, Index row, Index col) {
    const std::string tensor = "base_model.model.model.layers.0." + module;
    const std::vector<float> a = file.floats(tensor + ".lora_A.weight"),
                             b = file.floats(tensor + ".lora_B.weight");
    const Index cols = file.info(tensor + ".lora_A.weight").shape[1];
    double sum = 0;
    for (Index k = 0; k < 2; ++k) sum += static_cast<double>(b[at(row * 2 + k)]) * a[at(k * cols + col)];
    return 1.5 * sum;
  };
  // q has 32 rows, k 16; of experts 2 and 3 the second one's up rows begin behind 2 x 20 + 20.
  EXPECT_NEAR(difference("model.layers.0.self_attn.qkv_proj.weight", 33, 5),
              expected("self_attn.k_proj", 1, 5), 1e-5);
  EXPECT_NEAR(difference("model.layers.0.mlp.experts.gate_up_proj", 63, 7),
              expected("mlp.experts.3.up_proj", 3, 7), 1e-5);
  EXPECT_EQ(difference("model.layers.0.mlp.gate.weight", 1, 1), 0);
}

}  // namespace
}  // namespace moeloom
