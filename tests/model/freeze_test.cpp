#include "model/freeze.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "support/expect_error.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::small_config;

std::vector<ParameterSpec> whole() {
  return parameter_specs(small_config(), {0, small_config().num_experts});
}

std::set<std::string> matching(const NamePatterns& patterns) {
  return matching_parameters(whole(), patterns);
}

TEST(MatchingParameters, TakesTensorNamesAndParameterNames) {
  const std::string layer = "model.layers.0.";
  const struct {
    NamePatterns patterns;
    std::set<std::string> expected;
  } cases[] = {
      {{}, {}},
      {{"model.embed_tokens.*"}, {"model.embed_tokens.weight"}},
      {{"lm_head.weight", "model.norm.weight"}, {"lm_head.weight", "model.norm.weight"}},
      {{"model.layers.0.*.experts.*"}, {layer + "mlp.experts.gate_up_proj", layer + "mlp.experts.down_proj"}},
      {{layer + "mlp.experts.*.down_proj.weight"}, {layer + "mlp.experts.down_proj"}},
      {{layer + "self_attn.qkv_proj.weight"}, {layer + "self_attn.qkv_proj.weight"}},
      {{layer + "self_attn.?_proj.weight"},
       {layer + "self_attn.qkv_proj.weight", layer + "self_attn.o_proj.weight"}},
  };
  for (const auto& c : cases) EXPECT_EQ(matching(c.patterns), c.expected);
}

TEST(MatchingParameters, TogetherPatternsMayNameAllPartsOfOne) {
  EXPECT_EQ(matching({"*.1.*.q_proj.weight", "*.1.*.k_proj.weight", "*.1.*.v_proj.weight"}),
            (std::set<std::string>{"model.layers.1.self_attn.qkv_proj.weight"}));
}

TEST(MatchingParameters, RefusesAPartAndNamesIt) {
  EXPECT_EQ(message_of<ConfigError>([] { matching({"model.layers.1.self_attn.q_proj.weight"}); }),
            "model.layers.1.self_attn.qkv_proj.weight is trained as one: the patterns match "
            "model.layers.1.self_attn.q_proj.weight of it, but not model.layers.1.self_attn.k_proj.weight, "
            "model.layers.1.self_attn.v_proj.weight; name all of it or none");
  const std::string one_expert = message_of<ConfigError>([] { matching({"*.0.mlp.experts.3.*"}); });
  EXPECT_NE(one_expert.find("experts.gate_up_proj is trained as one: the patterns match "
                            "model.layers.0.mlp.experts.3.gate_proj.weight, "
                            "model.layers.0.mlp.experts.3.up_proj.weight of it, but not "
                            "model.layers.0.mlp.experts.0.gate_proj.weight"),
            std::string::npos)
      << one_expert;
  EXPECT_NE(one_expert.find("and 4 more; name all"), std::string::npos) << one_expert;
  EXPECT_NE(one_expert.find("; the same of 1 more, as in other layers"), std::string::npos) << one_expert;
  EXPECT_EQ(one_expert.find('\n'), std::string::npos) << "one line, whatever the number of layers";
}

TEST(MatchingParameters, RefusesPatternsThatMatchNothingAllAtOnce) {
  const std::string text = message_of<ConfigError>([] { matching({"*norm*", "embed", "*.7.*"}); });
  EXPECT_EQ(text,
            "pattern \"embed\" matches no tensor and no parameter of the model\n"
            "pattern \"*.7.*\" matches no tensor and no parameter of the model");
}

TEST(ParameterStore, HasNoGradientForAFrozenMatrixAndOneNobodyReadsForAVector) {
  const std::set<std::string> names = {"model.embed_tokens.weight", "model.norm.weight",
                                       "model.layers.0.mlp.experts.down_proj"};
  const ParameterStore free(whole());
  ParameterStore store(with_frozen(whole(), names));
  EXPECT_EQ(frozen_names(store), std::vector<std::string>(names.begin(), names.end()));
  for (const Placement placement : kPlacements) {
    Index trained = 0;
    EXPECT_EQ(store.size(placement), free.size(placement));
    for (const Parameter& parameter : store.parameters()) {
      const ParameterSpec& spec = parameter.spec;
      if (spec.placement != placement) continue;
      EXPECT_EQ(parameter.value.data, store.values(placement).data() + parameter.offset);
      if (!spec.frozen) {
        EXPECT_EQ(parameter.offset, trained) << "what is trained lies without gaps: " << spec.name;
        EXPECT_EQ(parameter.grad.data, store.gradients(placement).data() + trained);
        trained += parameter.value.size();
      } else {
        EXPECT_EQ(parameter.grad.rows, spec.is_matrix ? 0 : spec.rows) << spec.name;
      }
    }
    EXPECT_EQ(std::ssize(store.gradients(placement)), trained);
    for (const Parameter& parameter : store.parameters())
      if (parameter.spec.placement == placement && parameter.spec.frozen) {
        EXPECT_GE(parameter.offset, trained) << parameter.spec.name;
      }
  }
}

TEST(ParameterStore, StartsFromTheSameValuesWhateverIsFrozen) {
  ParameterStore free(whole());
  ParameterStore store(with_frozen(whole(), {"model.layers.1.self_attn.o_proj.weight"}));
  initialise(free, small_config(), 7);
  initialise(store, small_config(), 7);
  for (const Parameter& parameter : free.parameters()) {
    const auto values = parameter.value.flat();
    const auto others = store.find(parameter.spec.name).value.flat();
    EXPECT_TRUE(std::ranges::equal(values, others)) << parameter.spec.name;
  }
}

}  // namespace
}  // namespace moeloom
