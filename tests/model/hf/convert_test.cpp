#include "model/hf/convert/convert.hpp"

#include "model/decoder.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

constexpr Index kHidden = 4;
constexpr Index kInter = 6;
const std::string kLayer = "model.layers.0.";

using Shapes = std::map<std::string, std::vector<Index>>;

/// Tensors of these shapes with numbers that their names decide.
void write(const Shapes& shapes, const std::filesystem::path& folder, DType type = DType::kF32) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, shape] : shapes) specs.push_back({name, type, shape});
  const ShardPlan plan = plan_shards(specs);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const auto& [name, shape] : shapes) {
    Index count = 1;
    for (const Index size : shape) count *= size;
    std::vector<float> values;
    for (Index i = 0; i < count; ++i)
      values.push_back(
          static_cast<float>(CounterRandom(1, stream_of(name)).normal(static_cast<std::uint64_t>(i))));
    writer.write(name, 0, values);
  }
  writer.close();
}

Shapes dense_shapes() {
  return {{"model.embed_tokens.weight", {7, kHidden}},
          {kLayer + "mlp.gate_proj.weight", {kInter, kHidden}},
          {kLayer + "mlp.up_proj.weight", {kInter, kHidden}},
          {kLayer + "mlp.down_proj.weight", {kHidden, kInter}}};
}

Shapes list_shapes(const std::string& block, const std::vector<std::string>& parts, Index experts) {
  Shapes shapes = {{"model.embed_tokens.weight", {7, kHidden}},
                   {kLayer + block + "gate.weight", {experts, kHidden}}};
  for (Index e = 0; e < experts; ++e) {
    const std::string expert = kLayer + block + "experts." + std::to_string(e) + ".";
    shapes[expert + parts[0] + ".weight"] = {kInter, kHidden};
    shapes[expert + parts[1] + ".weight"] = {kInter, kHidden};
    shapes[expert + parts[2] + ".weight"] = {kHidden, kInter};
  }
  return shapes;
}

Shapes qwen_list(Index experts) {
  return list_shapes("mlp.", {"gate_proj", "up_proj", "down_proj"}, experts);
}

/// Folder of `recipes` made from `source`.
void convert(const std::filesystem::path& source, const std::filesystem::path& target,
             const std::function<Recipes(const Recipes&)>& change, const RecipeFormat& format = {}) {
  std::filesystem::create_directories(target);
  const SafetensorsFolder tensors(source);
  write_recipes(tensors, change(copies_of(tensors)), target, format);
}

std::vector<float> floats(const SafetensorsFolder& folder, const std::string& name) {
  return folder.file_of(name).floats(name);
}

bool same_bytes(const SafetensorsFolder& a, const SafetensorsFolder& b) {
  return a.names() == b.names() && std::ranges::all_of(a.names(), [&](const std::string& name) {
           return a.info(name).dtype == b.info(name).dtype && a.info(name).shape == b.info(name).shape &&
                  std::ranges::equal(a.file_of(name).raw(name), b.file_of(name).raw(name));
         });
}

Document config_of(const std::string& type) {
  Document config;
  config.set("model_type", type);
  config.set("hidden_act", "silu");
  config.set("intermediate_size", kInter);
  config.set("initializer_range", 0.5);
  config.set("rms_norm_eps", 1e-6);
  return config;
}

TEST(WriteRecipes, KeepsTheBiasThatChoosesExpertsInFp32) {
  const TemporaryFolder folder;
  const std::string bias = kLayer + "mlp.gate.e_score_correction_bias";
  write({{"model.embed_tokens.weight", {7, kHidden}}, {bias, {3}}}, folder.path());
  convert(folder.path(), folder / "half", [](const Recipes& r) { return r; }, {.dtype = DType::kBF16});
  const SafetensorsFolder source(folder.path()), half(folder / "half");
  EXPECT_EQ(half.info("model.embed_tokens.weight").dtype, DType::kBF16);
  EXPECT_EQ(half.info(bias).dtype, DType::kF32);
  EXPECT_EQ(floats(half, bias), floats(source, bias));
}

TEST(InLayout, StacksGateOverUpExpertByExpert) {
  const TemporaryFolder folder;
  write(qwen_list(11), folder.path());  // 10 sorts before 2
  convert(folder.path(), folder / "stacked",
          [](const Recipes& r) { return in_layout(r, ExpertFiles::kStacked, "qwen3_moe"); });
  const SafetensorsFolder source(folder.path());
  const SafetensorsFolder stacked(folder / "stacked");
  EXPECT_EQ(stacked.names(),
            (std::vector<std::string>{"model.embed_tokens.weight", kLayer + "mlp.experts.down_proj",
                                      kLayer + "mlp.experts.gate_up_proj", kLayer + "mlp.gate.weight"}));
  const std::string gate_up = kLayer + "mlp.experts.gate_up_proj";
  EXPECT_EQ(stacked.info(gate_up).shape, (std::vector<Index>{11, 2 * kInter, kHidden}));
  const std::vector<float> all = floats(stacked, gate_up);
  for (Index e = 0; e < 11; ++e)
    for (const bool up : {false, true}) {
      const std::vector<float> one = floats(
          source, kLayer + "mlp.experts." + std::to_string(e) + (up ? ".up" : ".gate") + "_proj.weight");
      const auto begin = all.begin() + (2 * e + (up ? 1 : 0)) * kInter * kHidden;
      EXPECT_TRUE(std::equal(one.begin(), one.end(), begin)) << e << up;
    }
}

TEST(InLayout, ThereAndBackKeepsEveryBit) {
  const std::tuple<const char*, Shapes> models[] = {
      {"qwen3_moe", qwen_list(11)},
      {"olmoe", qwen_list(1)},
      {"mixtral", list_shapes("block_sparse_moe.", {"w1", "w3", "w2"}, 3)},
      {"phimoe", list_shapes("block_sparse_moe.", {"w1", "w3", "w2"}, 3)}};
  for (const auto& [type, shapes] : models)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const TemporaryFolder folder;
      write(shapes, folder.path(), dtype);
      const auto to = [&, model = std::string(type)](ExpertFiles layout) {
        return [layout, model](const Recipes& r) { return in_layout(r, layout, model); };
      };
      convert(folder.path(), folder / "stacked", to(ExpertFiles::kStacked));
      convert(folder / "stacked", folder / "list", to(ExpertFiles::kList),
              {.shard_bytes = 200, .dtype = std::nullopt, .seed = 0});
      convert(folder / "list", folder / "again", to(ExpertFiles::kStacked));
      convert(folder.path(), folder / "same", to(ExpertFiles::kList));
      EXPECT_TRUE(same_bytes(SafetensorsFolder(folder.path()), SafetensorsFolder(folder / "list"))) << type;
      EXPECT_TRUE(same_bytes(SafetensorsFolder(folder / "stacked"), SafetensorsFolder(folder / "again")));
      EXPECT_TRUE(same_bytes(SafetensorsFolder(folder.path()), SafetensorsFolder(folder / "same")));
    }
}

TEST(InLayout, MovesMixtralsBlockWithItsRouter) {
  for (const auto& [type, router] : {std::pair("mixtral", "gate"), std::pair("phimoe", "router")}) {
    const TemporaryFolder folder;
    write(list_shapes("block_sparse_moe.", {"w1", "w3", "w2"}, 3), folder.path());
    convert(folder.path(), folder / "stacked", [model = std::string(type)](const Recipes& r) {
      return in_layout(r, ExpertFiles::kStacked, model);
    });
    const SafetensorsFolder stacked(folder / "stacked");
    EXPECT_EQ(stacked.names(),
              (std::vector<std::string>{"model.embed_tokens.weight", kLayer + "mlp.experts.down_proj",
                                        kLayer + "mlp.experts.gate_up_proj",
                                        kLayer + "mlp." + router + ".weight"}));
  }
}

TEST(InLayout, RefusesWhatIsNoWholeStackOfLikeExperts) {
  const std::string up = kLayer + "mlp.experts.1.up_proj.weight";
  const std::tuple<std::function<void(Shapes&)>, const char*, const char*> cases[] = {
      {[&](Shapes& s) { s.erase(up); }, "qwen3_moe", "experts.1.up_proj.weight is missing"},
      {[&](Shapes& s) {
         s[up] = {kHidden, kInter};
       },
       "qwen3_moe", "has not the shape"},
      {[](Shapes& s) { s = dense_shapes(); }, "qwen3", "no tensor of this model is one"},
      {[](Shapes&) {}, "qwen3_vl_moe_text", "reads its experts as stacks [E, D, 2F] alone"}};
  for (const auto& [edit, type, expected] : cases) {
    const TemporaryFolder folder;
    Shapes shapes = qwen_list(3);
    edit(shapes);
    write(shapes, folder.path());
    const std::string text = message_of<ConfigError>([&, model = std::string(type)] {
      in_layout(copies_of(SafetensorsFolder(folder.path())), ExpertFiles::kStacked, model);
    });
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
}

TEST(Upcycled, CopiesTheMlpIntoEachExpertUnderTheFamilysNames) {
  const std::tuple<const char*, const char*, std::vector<std::string>> families[] = {
      {"qwen3", "mlp.", {"gate_proj", "up_proj", "down_proj"}},
      {"llama", "block_sparse_moe.", {"w1", "w3", "w2"}}};
  for (const auto& [type, block, parts] : families) {
    const TemporaryFolder folder;
    write(dense_shapes(), folder.path(), DType::kBF16);
    const Document config = config_of(type);
    convert(folder.path(), folder / "moe",
            [&](const Recipes& r) { return upcycled(r, config, {.experts = 3, .top_k = 2}); });
    const SafetensorsFolder dense(folder.path());
    const SafetensorsFolder moe(folder / "moe");
    std::vector<std::string> expected;
    for (const auto& [name, shape] : list_shapes(block, parts, 3)) expected.push_back(name);
    EXPECT_EQ(moe.names(), expected);
    const std::vector<std::string> from = {"gate_proj", "up_proj", "down_proj"};
    for (std::size_t part = 0; part < parts.size(); ++part)
      for (Index e = 0; e < 3; ++e)
        EXPECT_EQ(
            floats(moe, kLayer + block + "experts." + std::to_string(e) + "." + parts[part] + ".weight"),
            floats(dense, kLayer + "mlp." + from[part] + ".weight"));
    const std::vector<float> router = floats(moe, kLayer + block + "gate.weight");
    double squares = 0;
    for (const float w : router) squares += static_cast<double>(w) * w;
    EXPECT_EQ(router.size(), 3u * kHidden);
    // 12 draws of deviation 0.5: chi-squared of 12 degrees lies outside [2, 72] for 6 seeds in 10,000.
    EXPECT_GT(squares / 0.25, 2);
    EXPECT_LT(squares / 0.25, 72);
  }
}

TEST(Upcycled, AddsNoiseOfItsOwnToEachExpertAndTheSameForASeed) {
  const TemporaryFolder folder;
  Shapes shapes = dense_shapes();
  const std::string dense_up = kLayer + "mlp.up_proj.weight";
  shapes[dense_up] = {200, 50};
  write(shapes, folder.path());
  const auto noisy = [&](const char* name, std::uint64_t seed) {
    convert(folder.path(), folder / name,
            [&](const Recipes& r) {
              return upcycled(r, config_of("qwen3"), {.experts = 2, .top_k = 1, .noise = 0.1});
            },
            {.shard_bytes = kShardBytes, .dtype = std::nullopt, .seed = seed});
    return SafetensorsFolder(folder / name);
  };
  const SafetensorsFolder one = noisy("one", 1);
  EXPECT_TRUE(same_bytes(one, noisy("again", 1)));
  EXPECT_FALSE(same_bytes(one, noisy("other", 2)));
  const std::vector<float> dense = floats(SafetensorsFolder(folder.path()), dense_up);
  const std::vector<float> first = floats(one, kLayer + "mlp.experts.0.up_proj.weight");
  EXPECT_NE(first, floats(one, kLayer + "mlp.experts.1.up_proj.weight"));
  double noise = 0, signal = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    noise += std::pow(static_cast<double>(first[i]) - dense[i], 2);
    signal += std::pow(static_cast<double>(dense[i]), 2);
  }
  EXPECT_NEAR(std::sqrt(noise / signal), 0.1, 0.004);  // of 10^4 draws: five deviations
}

TEST(Upcycled, StacksAtOnce) {
  const TemporaryFolder folder;
  write(dense_shapes(), folder.path());
  const auto moe = [](const Recipes& r) {
    return upcycled(r, config_of("qwen3"), {.experts = 3, .top_k = 2, .noise = 0.2});
  };
  convert(folder.path(), folder / "list", moe);
  convert(folder / "list", folder / "then",
          [](const Recipes& r) { return in_layout(r, ExpertFiles::kStacked, "qwen3_moe"); });
  convert(folder.path(), folder / "at_once",
          [&](const Recipes& r) { return in_layout(moe(r), ExpertFiles::kStacked, "qwen3_moe"); });
  EXPECT_TRUE(same_bytes(SafetensorsFolder(folder / "then"), SafetensorsFolder(folder / "at_once")));
}

/// Of the model in a folder, on a batch of golden ids.
std::vector<float> logits_of(const std::filesystem::path& folder, const SafetensorsFile& golden) {
  const ModelConfig config = ModelConfig::read(folder);
  const Mesh mesh(Communicator::world(), {Communicator::world().size(), 1, {"dp", "ep"}});
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  load_weights(store, SafetensorsFolder(folder), config);
  Decoder decoder(config, store, mesh, KernelTable());
  Batch batch;
  batch.sequences = golden.info("input_ids").shape[0];
  batch.sequence_length = golden.info("input_ids").shape[1];
  for (const std::int64_t id : golden.integers("input_ids"))
    batch.input_ids.push_back(static_cast<std::int32_t>(id));
  const Matrix logits = decoder.logits(batch);
  return {logits.view().flat().begin(), logits.view().flat().end()};
}

void expect_dense_logits(const std::filesystem::path& dense, const Upcycling& settings) {
  const Document config = Document::read(dense / "config.json");
  const SafetensorsFile golden(dense / "golden.safetensors");
  const TemporaryFolder folder;
  convert(dense, folder / "moe", [&](const Recipes& r) { return upcycled(r, config, settings); });
  upcycled_config(config, settings).write(folder / "moe" / "config.json");
  // The tolerance of golden logits.
  EXPECT_LE(
      testing::golden_error(logits_of(folder / "moe", golden), golden.floats("logits"), testing::kModelFloor),
      1e-5)
      << dense << settings.experts;
}

TEST(Upcycled, WithoutNoiseComputesWhatTheDenseModelDid) {
  bool any = false;
  for (const auto& dense : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const std::string type = Document::read(dense / "config.json").text("model_type");
    if (type != "qwen3" && type != "llama") continue;
    any = true;
    for (const Upcycling& settings :
         {Upcycling{.experts = 4, .top_k = 2}, Upcycling{.experts = 3, .top_k = 3},
          Upcycling{.experts = 1, .top_k = 1}})
      expect_dense_logits(dense, settings);
  }
  if (!any) GTEST_SKIP() << "no dense Qwen3 or Llama among the golden models";
}

TEST(UpcycledConfig, SaysWhatTheDenseFamilyFallsBackTo) {
  for (const char* type : {"qwen3", "llama"}) {
    Document config = config_of(type);
    config.erase("rms_norm_eps");
    for (const char* key : {"vocab_size", "num_hidden_layers"}) config.set(key, 2);
    config.set("num_attention_heads", 64);
    config.set("hidden_size", 64 * 96);
    const ModelConfig dense = ModelConfig::from(config);
    const ModelConfig sparse = ModelConfig::from(upcycled_config(config, {.experts = 4, .top_k = 2}));
    EXPECT_EQ(sparse.rms_norm_eps, dense.rms_norm_eps) << type;
    EXPECT_EQ(sparse.rope_theta, dense.rope_theta) << type;
    EXPECT_EQ(sparse.num_key_value_heads, dense.num_key_value_heads) << type;
    EXPECT_EQ(sparse.head_dim, dense.head_dim) << type;
    EXPECT_EQ(sparse.max_position_embeddings, dense.max_position_embeddings) << type;
    EXPECT_EQ(sparse.tie_word_embeddings, dense.tie_word_embeddings) << type;
  }
}

TEST(UpcycledConfig, SaysTheNewFamilyAndKeepsTheRest) {
  const Document qwen = upcycled_config(config_of("qwen3"), {.experts = 8, .top_k = 2});
  EXPECT_EQ(qwen.text("model_type"), "qwen3_moe");
  EXPECT_EQ(qwen.texts("architectures"), (std::vector<std::string>{"Qwen3MoeForCausalLM"}));
  EXPECT_EQ(qwen.integer("num_experts"), 8);
  EXPECT_EQ(qwen.integer("moe_intermediate_size"), kInter);
  EXPECT_TRUE(qwen.boolean("norm_topk_prob"));
  EXPECT_EQ(qwen.number("rms_norm_eps"), 1e-6);
  Document llama = config_of("llama");
  llama.set("mlp_bias", false);
  llama.set("pretraining_tp", 1);
  const Document mixtral = upcycled_config(llama, {.experts = 4, .top_k = 1});
  EXPECT_EQ(mixtral.text("model_type"), "mixtral");
  EXPECT_EQ(mixtral.integer("num_local_experts"), 4);
  EXPECT_EQ(mixtral.integer("num_experts_per_tok"), 1);
  EXPECT_EQ(std::ranges::count(mixtral.keys(), "mlp_bias"), 0);
}

TEST(UpcycledConfig, RefusesWhatTheNewFamilyCannotSay) {
  const std::tuple<const char*, std::function<void(Document&)>, Upcycling, const char*> cases[] = {
      {"gemma3_text",
       [](Document&) {},
       {},
       "\"gemma3_text\" cannot be upcycled; known: llama (to mixtral), qwen3 (to qwen3_moe)"},
      {"qwen3_moe", [](Document&) {}, {}, "cannot be upcycled"},
      {"llama", [](Document& c) { c.set("mlp_bias", true); }, {}, "mlp_bias = true cannot be said"},
      {"llama", [](Document& c) { c.set("attention_bias", true); }, {}, "attention_bias = true cannot"},
      {"qwen3", [](Document& c) { c.set("hidden_act", "gelu"); }, {}, "experts are silu"},
      {"qwen3",
       [](Document& c) { c.set("layer_types", std::vector<std::string>{"sliding_attention"}); },
       {},
       "layer_types holds \"sliding_attention\""},
      {"qwen3", [](Document&) {}, {.experts = 0, .top_k = 1}, "experts = 0 must be at least 1"},
      {"qwen3", [](Document&) {}, {.experts = 4, .top_k = 5}, "top-k = 5 must lie between 1 and experts = 4"},
      {"qwen3", [](Document&) {}, {.experts = 4, .top_k = 2, .noise = -1}, "noise must not be negative"},
  };
  for (const auto& [type, edit, settings, expected] : cases) {
    Document config = config_of(type);
    edit(config);
    const std::string text =
        message_of<ConfigError>([&, s = settings] { static_cast<void>(upcycled_config(config, s)); });
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
}

TEST(Convert, RefusesAStackOfAnyNumberOfExpertsWithoutElements) {
  const TemporaryFolder folder;
  write({{kLayer + "mlp.experts.gate_up_proj", {Index{1} << 58, 2, 0}}}, folder.path());
  const SafetensorsFolder tensors(folder.path());
  EXPECT_NE(message_of<ConfigError>([&] {
              in_layout(copies_of(tensors), ExpertFiles::kList, "qwen3_moe");
            }).find("has no elements"),
            std::string::npos);
}

TEST(Convert, LeavesExpertsWithBiasesInTheLayoutThatTheyHave) {
  for (const auto& [name, layout] : {std::pair{"experts.0.up_proj.bias", ExpertFiles::kStacked},
                                     std::pair{"experts.gate_up_proj_bias", ExpertFiles::kList}}) {
    const TemporaryFolder folder;
    write({{kLayer + "mlp." + name, {4}}}, folder.path());
    const SafetensorsFolder tensors(folder.path());
    const std::string text =
        message_of<ConfigError>([&, layout = layout] { in_layout(copies_of(tensors), layout, "qwen3_moe"); });
    EXPECT_NE(text.find(name + std::string(": experts with biases have one layout")), std::string::npos)
        << text;
  }
}

TEST(Convert, RefusesToUpcycleAGateOfOneSize) {
  const TemporaryFolder folder;
  write({{kLayer + "mlp.gate_proj.weight", {kInter}}}, folder.path());
  const SafetensorsFolder tensors(folder.path());
  const Document config = Document::parse(R"({"model_type": "qwen3", "intermediate_size": 6})", "test");
  const Upcycling settings{.experts = 2, .top_k = 1};
  EXPECT_NE(message_of<ConfigError>([&] {
              upcycled(copies_of(tensors), config, settings);
            }).find("must have two sizes"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
