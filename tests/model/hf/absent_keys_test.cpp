// What an absent key means: the default of transformers' class, key by key, of the families of
// transformers 5. The values are those of class_keys_5.15.0.json (class_keys_test.cpp).
#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <set>
#include <sstream>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

void tell(std::ostream& out, const AttentionSpec& s) {
  out << "heads " << s.heads << ' ' << s.kv_heads << ' ' << s.head_dim << ' ' << s.value_dim << " values "
      << s.value_scale << s.value_norm << s.keys_are_values << s.keys_of.value_or(-1) << " norm "
      << static_cast<int>(s.qk_norm) << s.norm.eps << " sees " << s.window << ' ' << s.chunk << s.sinks << ' '
      << s.scale << " rope " << s.rope << " biases " << s.qkv_bias << s.output_bias << " gate "
      << s.gate_width();
}

void tell(std::ostream& out, const MoeSpec& s) {
  const RouterSettings& r = s.router;
  out << " experts " << r.num_experts << ' ' << r.top_k << ' ' << s.width << " groups " << r.num_groups << ' '
      << r.topk_group << " router " << static_cast<int>(r.score) << static_cast<int>(r.weigh_by)
      << static_cast<int>(r.divide.by) << r.divide.number << ' ' << r.scaling_factor << ' ' << r.logit_cap
      << ' ' << static_cast<int>(r.balance_by) << " shared " << (s.shared ? s.shared->width : 0)
      << s.output_scale;
}

/// All that the model computes with.
std::string computed(const ModelConfig& config) {
  std::ostringstream out;
  for (const ParameterSpec& spec : own_parameters(config))
    out << spec.name << ' ' << spec.rows << 'x' << spec.cols << '\n';
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerSpec spec = config.layer(layer);
    if (spec.attention() != nullptr) tell(out, *spec.attention());
    if (spec.moe) tell(out, *spec.moe);
    out << " scale " << spec.residual_scale << spec.parallel << '\n';
  }
  for (const RopeSettings& rope : config.ropes())
    for (const double frequency : rope_frequencies(64, rope)) out << frequency << ' ';
  out << config.final_norm().settings.eps << static_cast<int>(config.final_norm().kind) << ' '
      << config.embedding_scale() << ' ' << config.logits_scaling << ' ' << config.logit_cap << ' '
      << config.output_router_logits << config.router_aux_loss_coef << ' '
      << config.pad_token_id.value_or(-1);
  return out.str();
}

/// Without them there is no model, or another one of the caller's own: every released file has them.
const std::set<std::string> kStated = {"model_type",        "vocab_size",          "hidden_size",
                                       "num_hidden_layers", "num_attention_heads", "enable_moe_block"};
/// Not the class's defaults where the file was made.
const std::set<std::string> kOfTheFile = {"num_experts",      "top_k_experts",   "moe_intermediate_size",
                                          "head_dim",         "mlp_layer_types", "layer_types",
                                          "num_local_experts"};

TEST(AbsentKeys, MeanWhatTheClassesDefaultsSay) {
  const Document keys =
      Document::read(testing::source_root() / "tests/model/hf/class_keys_5.15.0.json").object("families");
  Index removed = 0;
  for (const std::string type :
       {"afmoe", "axk1", "cohere2_moe", "exaone_moe", "gemma4_text", "glm4_moe_lite", "granitemoe_swa",
        "hy_v3", "laguna", "mellum", "mimo_v2_flash", "minimax_m2", "solar_open"}) {
    Document whole = keys.object(type);
    whole.set("model_type", type);
    const std::string expected = computed(ModelConfig::from(whole));
    for (const std::string& key : whole.keys()) {
      if (kStated.contains(key) || (type == "gemma4_text" && kOfTheFile.contains(key))) continue;
      SCOPED_TRACE(type + " without " + key);
      Document without = whole;
      without.erase(key);
      try {
        EXPECT_EQ(computed(ModelConfig::from(without)), expected);
        ++removed;
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(removed, 300);
}

}  // namespace
}  // namespace moeloom
