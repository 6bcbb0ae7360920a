// Parsers of model and train: config.json, tensors that are converted by their names, trainer_state.json.
#include "model/hf/convert/convert.hpp"
#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "fuzz/target.hpp"
#include "support/small_model.hpp"

namespace moeloom::fuzz {
namespace {

void run_config(std::string_view input) {
  const ModelConfig config = ModelConfig::from(Document::parse(input, "config.json"));
  expect(config_violations(config).empty(), "a config that was read is refused");
  const std::string text = config.to_document().dump();
  const ModelConfig again = ModelConfig::from(Document::parse(text, "again"));
  expect(again.to_document().dump() == text, "a config that was written reads back as another");
  constexpr Index kMost = 256;  // more are as good and take longer
  if (config.num_hidden_layers * (1 + config.num_experts) > kMost) return;
  expect(config.total_parameters() >= config.active_parameters(),
         "more parameters are active than there are");
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) config.layer(layer);
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    expect(spec.rows >= 1 && spec.cols >= 1, "a parameter without elements");
  expect(!tensor_specs(config).empty(), "a model without tensors");
}

std::vector<std::string> config_seeds() {
  const std::string sizes =
      R"("vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,)"
      R"("num_key_value_heads":2,"head_dim":4,"intermediate_size":8,"pad_token_id":null)";
  const std::string experts = R"(,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":4)";
  std::vector<std::string> seeds;
  for (const char* type : {"qwen3_moe", "qwen2_moe", "olmoe", "qwen3", "llama", "phi3", "gemma3_text"})
    seeds.push_back(std::string(R"({"model_type":")") + type + "\"," + sizes + experts +
                    R"(,"shared_expert_intermediate_size":4})");
  seeds.push_back(R"({"model_type":"mixtral",)" + sizes +
                  R"(,"num_local_experts":4,"num_experts_per_tok":2})");
  seeds.push_back(
      R"({"model_type":"deepseek_v3","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":2,"num_key_value_heads":2,"q_lora_rank":4,"kv_lora_rank":4,)"
      R"("qk_nope_head_dim":4,"qk_rope_head_dim":2,"v_head_dim":4,"n_routed_experts":4,"n_shared_experts":1,)"
      R"("num_experts_per_tok":2,"moe_intermediate_size":4,"intermediate_size":8,"n_group":2,"topk_group":1,)"
      R"("first_k_dense_replace":1,"rope_scaling":{"type":"yarn","factor":4.0,"mscale":1.0,)"
      R"("mscale_all_dim":1.0,"original_max_position_embeddings":64}})");
  seeds.push_back(
      R"({"model_type":"llama",)" + sizes +
      R"(,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":64},"layer_types":["full_attention","full_attention"]})");
  seeds.push_back(R"({"model_type":"qwen3_vl_moe","text_config":{"model_type":"qwen3_vl_moe_text",)" + sizes +
                  experts + "}}");
  return seeds;
}

std::vector<std::string> config_words() {
  std::vector<std::string> words = {"1e400",
                                    "1e308",
                                    "-1",
                                    "0",
                                    "null",
                                    "4096",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "\"rope_scaling\"",
                                    "\"rope_parameters\"",
                                    "\"yarn\"",
                                    "\"longrope\"",
                                    "\"linear\"",
                                    "\"llama3\"",
                                    "\"layer_types\"",
                                    "\"sliding_attention\"",
                                    "\"sliding_window\"",
                                    "\"mlp_only_layers\"",
                                    "\"decoder_sparse_step\"",
                                    "\"partial_rotary_factor\"",
                                    "\"pad_token_id\"",
                                    "\"rope_theta\"",
                                    "\"query_pre_attn_scalar\"",
                                    "\"hidden_act\"",
                                    "\"tie_word_embeddings\"",
                                    "\"max_position_embeddings\"",
                                    "\"short_factor\"",
                                    "\"long_factor\""};
  for (const Family& family : families()) words.push_back("\"" + family.model_type + "\"");
  return words;
}

// ---- tensors by name -------------------------------------------------------------------------------------

/// A line is a name and its sizes.
Recipes recipes_of(std::string_view input) {
  Recipes recipes;
  std::istringstream lines{std::string(input)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    TensorRecipe recipe;
    words >> recipe.spec.name;
    Index elements = 1;
    bool fits = true;
    for (Index size = 0; words >> size && size >= 0;) {
      recipe.spec.shape.push_back(size);
      fits = fits && !__builtin_mul_overflow(elements, size, &elements);
    }
    constexpr Index kMost = 1 << 12;  // what a header of a file as large as the input may say of its bytes
    if (recipe.spec.name.empty() || !fits || elements > kMost) continue;
    TensorPiece& piece = recipe.pieces.emplace_back();
    piece.count = elements;
    piece.source = recipe.spec.name;
    recipes.push_back(recipe);
  }
  return recipes;
}

void convert_if_it_can(const auto& conversion) {
  try {
    for (const TensorRecipe& recipe : conversion()) {
      Index end = 0;
      for (const TensorPiece& piece : recipe.pieces) {
        expect(piece.begin == end && piece.count >= 0, "pieces of a tensor leave a hole");
        end += piece.count;
      }
    }
  } catch (const ConfigError&) {
  }
}

void run_convert(std::string_view input) {
  const Recipes recipes = recipes_of(input);
  const Document config = Document::parse(R"({"model_type":"qwen3","intermediate_size":4})", "config.json");
  for (const ExpertFiles layout : {ExpertFiles::kList, ExpertFiles::kStacked})
    for (const char* type : {"qwen3_moe", "mixtral", "qwen3_vl_moe_text"})
      convert_if_it_can([&] { return in_layout(recipes, layout, type); });
  convert_if_it_can([&] { return upcycled(recipes, config, {.experts = 3, .top_k = 1}); });
}

std::vector<std::string> convert_seeds() {
  const std::string layer = "model.layers.0.mlp.";
  std::string listed = "model.embed_tokens.weight 4 2\n" + layer + "gate.weight 2 2\n";
  for (const char* expert : {"0", "1"})
    for (const char* part : {"gate_proj.weight 3 2\n", "up_proj.weight 3 2\n", "down_proj.weight 2 3\n"})
      listed += layer + "experts." + expert + "." + part;
  return {
      listed, layer + "experts.gate_up_proj 2 6 2\n" + layer + "experts.down_proj 2 2 3\n",
      layer + "gate_proj.weight 3 2\n" + layer + "up_proj.weight 3 2\n" + layer + "down_proj.weight 2 3\n"};
}

// ---- adapter_config.json ---------------------------------------------------------------------------------

/// The document, and behind a byte 0xFF the names of the tensors beside it, a line each, all of one shape.
void run_adapter(std::string_view input) {
  const std::size_t end = std::min(input.find('\xff'), input.size());
  std::istringstream lines{std::string(input.substr(std::min(end + 1, input.size())))};
  TensorShapes tensors;
  for (std::string line; std::getline(lines, line);) tensors[line] = {4, 24};
  const Document document = Document::parse(input.substr(0, end), "adapter_config.json");
  const AdapterSettings settings =
      adapter_settings(document, tensors, testing::tiny_config(), "adapter_config.json");
  expect(settings.rank >= 1 && settings.alpha > 0, "an adapter without a rank or alpha");
  expect(!settings.modules.empty() && settings.modules.size() <= tensors.size(),
         "an adapter has more modules than tensors");
}

std::vector<std::string> adapter_seeds() {
  const std::string head = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"none","modules_to_save":null)";
  const std::string layer = "base_model.model.model.layers.0.";
  const auto factors = [&](const std::string& path) {
    return layer + path + ".lora_A.weight\n" + layer + path + ".lora_B.weight\n";
  };
  const std::string stacks = R"(,"peft_version":"0.19.1","target_parameters":["mlp.experts.gate_up_proj")";
  return {head + "}\xff" + factors("self_attn.q_proj"),
          head + stacks + R"(,"model.layers.0.mlp.experts.down_proj"]})" + "\xff" + factors("mlp.experts") +
              factors("mlp.experts.base_layer"),
          head + R"(,"rank_pattern":{".*_proj":3},"alpha_pattern":{"q_proj":1.5}})" + "\xff" +
              factors("self_attn.q_proj"),
          head + stacks + "]}\xff" + factors("mlp.experts") + factors("mlp.gate")};
}

// ---- trainer_state.json ----------------------------------------------------------------------------------

void run_trainer_state(std::string_view input) {
  const TrainerState state = TrainerState::from(Document::parse(input, "trainer_state.json"));
  const std::string text = state.to_document().dump();
  const TrainerState again = TrainerState::from(Document::parse(text, "again"));
  expect(again.to_document().dump() == text, "a state that was written reads back as another");
}

std::vector<std::string> trainer_state_seeds() {
  TrainerState state;
  const std::string empty = state.to_document().dump();
  state.step = 12;
  state.seed = ~std::uint64_t{0};
  state.mesh = {.dp = 2, .ep = 4};
  state.settings.set("steps", 20);
  state.times = {{"model.norm.weight", {12}}, {"model.layers.0.mlp.experts", {12, 11, 0}}};
  state.frozen = {"model.embed_tokens.weight"};
  state.weight_checksums = {{"model.norm.weight", "0123456789abcdef"}};
  state.moment_checksums = {{"exp_avg.model.norm.weight", "0123456789abcdef"}};
  return {empty, state.to_document().dump()};
}

}  // namespace

std::vector<Target> model_targets() {
  return {{"config", run_config, config_seeds, config_words()},
          {"convert",
           run_convert,
           convert_seeds,
           {".mlp.", "experts.", "gate_up_proj", "down_proj", "gate_proj.weight", "up_proj.weight",
            "down_proj.weight", "block_sparse_moe.", "w1.weight", "w2.weight", "w3.weight",
            "9223372036854775807", " 0 ", "model.layers.0."}},
          {"adapter",
           run_adapter,
           adapter_seeds,
           {"\"target_parameters\"", "\"target_modules\"", "\"r\"", "\"lora_alpha\"", "\"use_rslora\"",
            "\"rank_pattern\"", "\"alpha_pattern\"", "\"peft_version\"", ".base_layer", ".experts",
            "gate_up_proj", "down_proj", ".lora_A.weight", ".lora_B.weight", "base_model.model.", "weight",
            "null", "-1", "1e400"}},
          {"trainer_state",
           run_trainer_state,
           trainer_state_seeds,
           {"\"mesh\"", "\"dp\"", "\"ep\"", "\"order\"", "\"times\"", "\"settings\"", "\"format\"", "null",
            "-1", "9223372036854775807", "1e400", "[]", "{}"}}};
}

}  // namespace moeloom::fuzz
