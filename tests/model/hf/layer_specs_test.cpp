// What the families' layers are is family_test's and the golden models'; here: that a specification asks for
// parameters that the model has, and for all of them.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelConfig dense(const std::string& type) {
  ModelConfig config = testing::tiny_config();
  config.model_type = type;
  config.num_experts = 0;
  config.mlp_only_layers = {};
  return config;
}

std::vector<ModelConfig> models() {
  return {testing::tiny_config(), testing::deepseek_config(), dense("glm4"), dense("gemma3_text"),
          dense("llama")};
}

std::vector<NormSpec> norms_of(const LayerSpec& layer) {
  std::vector<NormSpec> norms;
  for (const auto& norm :
       {layer.mixer_norm, layer.feed_forward_norm, layer.mixer_output_norm, layer.feed_forward_output_norm})
    if (norm) norms.push_back(*norm);
  return norms;
}

Index experts(const ModelConfig& config) {
  return std::max<Index>(config.num_experts, 1);
}

TEST(LayerSpec, NamesItsNormsAsTheParametersAreNamedAndNoOther) {
  for (const ModelConfig& config : models()) {
    SCOPED_TRACE(config.model_type);
    std::set<std::string> said = {config.final_norm().name}, there;
    for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const NormSpec& norm : norms_of(config.layer(layer))) {
        EXPECT_EQ(norm.width, config.hidden_size) << norm.name;
        EXPECT_TRUE(said.insert(norm.name).second) << norm.name << " twice";
      }
    for (const ParameterSpec& spec : parameter_specs(config, {0, experts(config)})) {
      const bool of_attention = spec.name.find("self_attn.") != std::string::npos;
      if (spec.name.find("norm") != std::string::npos && !of_attention) there.insert(spec.name);
    }
    EXPECT_EQ(said, there);
  }
}

TEST(LayerSpec, HasEitherAnMlpOrExpertsWithAPrefixThatParametersHave) {
  for (const ModelConfig& config : models()) {
    SCOPED_TRACE(config.model_type);
    const ParameterStore store(parameter_specs(config, {0, experts(config)}));
    for (Index i = 0; i < config.num_hidden_layers; ++i) {
      const LayerSpec layer = config.layer(i);
      EXPECT_NE(layer.mlp.has_value(), layer.moe.has_value()) << i;
      EXPECT_EQ(layer.moe.has_value(), config.is_sparse(i)) << i;
      if (layer.mlp)
        EXPECT_EQ(store.find(layer.mlp->prefix + "gate_up_proj.weight").spec.rows, 2 * layer.mlp->width);
      else
        EXPECT_EQ(store.find(layer.moe->prefix + "gate.weight").spec.rows, config.num_experts);
    }
  }
}

TEST(LayerSpec, WidthsFollowFromHeads) {
  const AttentionSpec latent = *testing::deepseek_config().layer(0).attention();
  EXPECT_EQ(latent.output_width(), 4 * 6);
  EXPECT_EQ(latent.value_width(), 4 * 6);
  const AttentionSpec grouped = *testing::tiny_config().layer(0).attention();
  EXPECT_EQ(grouped.query_width(), 4 * 8);
  EXPECT_EQ(grouped.key_width(), 2 * 8);
  EXPECT_EQ(grouped.output_width(), grouped.query_width()) << "o_proj reads a value a query head";
}

TEST(LayerSpec, OfAFamilyWithoutARowIsRefusedByItsName) {
  ModelConfig config = testing::tiny_config();
  config.model_type = "t5";
  try {
    config.layer(0);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("model_type = \"t5\" is not supported"), std::string::npos) << text;
    EXPECT_NE(text.find("qwen3_moe"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace moeloom
