#include "hf/config/config_rope.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

constexpr const char* kPartialKey = "partial_rotary_factor";

LinearScaling linear(ConfigReader& rope) {
  return {.factor = rope.number("factor")};
}

/// The length that a model was trained at, which some files have beside the object and some in it. 5.15 goes
/// by the one beside it, 4.57 by the one in it.
std::optional<double> original_length(ConfigReader& top, ConfigReader& rope) {
  const char* const key = "original_max_position_embeddings";
  const std::optional<double> beside = top.optional_number(key), inside = rope.optional_number(key);
  if (beside && inside && *beside != *inside)
    rope.refuse(std::string(key) + " = " + number_text(*inside) + " contradicts " + key + " = " +
                number_text(*beside) + " beside it");
  return beside ? beside : inside;
}

Llama3Scaling llama3(ConfigReader& top, ConfigReader& rope) {
  const std::optional<double> length = original_length(top, rope);
  return {
      .factor = rope.number("factor"),
      .low_freq_factor = rope.number("low_freq_factor"),
      .high_freq_factor = rope.number("high_freq_factor"),
      .original_max_position_embeddings = length ? *length : rope.number("original_max_position_embeddings")};
}

/// HF takes the factor as it is stated, also where two lengths give another (gpt_oss, golden data of 4.57.6).
YarnScaling yarn(ConfigReader& top, ConfigReader& rope, const ModelConfig& config) {
  const double length = static_cast<double>(config.max_position_embeddings);
  YarnScaling scaling;
  scaling.factor = rope.number("factor");
  scaling.original_max_position_embeddings = original_length(top, rope).value_or(length);
  scaling.attention_factor = rope.optional_number("attention_factor");
  const auto or_default = [&](const char* key, double fallback) {
    const double value = rope.optional_number(key).value_or(0);
    return value == 0 ? fallback : value;  // as HF's `or`
  };
  scaling.beta_fast = or_default("beta_fast", 32);
  scaling.beta_slow = or_default("beta_slow", 1);
  scaling.mscale = rope.optional_number("mscale").value_or(0);
  scaling.mscale_all_dim = rope.optional_number("mscale_all_dim").value_or(0);
  scaling.truncate = rope.boolean_or("truncate", true);
  return scaling;
}

/// The attention factor divides by the length's logarithm, which that of one position does not have.
Index whole_length(double length, ConfigReader& rope) {
  constexpr double kMost = 2147483648.0;  // as of max_position_embeddings
  if (length >= 2 && length <= kMost) return static_cast<Index>(length);
  rope.refuse("original_max_position_embeddings = " + number_text(length) +
              " must lie between 2 and 2147483648");
  return 4096;
}

/// Phi3's lists, one factor a pair; lengths beyond the original one use the long ones.
LongRopeScaling longrope(ConfigReader& top, ConfigReader& rope, const ModelConfig& config) {
  LongRopeScaling scaling;
  scaling.short_factor = rope.numbers("short_factor");
  scaling.long_factor = rope.numbers("long_factor");
  scaling.original_max_position_embeddings = whole_length(original_length(top, rope).value_or(4096), rope);
  const double stretch = static_cast<double>(config.max_position_embeddings) /
                         static_cast<double>(scaling.original_max_position_embeddings);
  scaling.factor = rope.number_or("factor", stretch);
  scaling.attention_factor = rope.optional_number("attention_factor");
  if (config.family().rope.mscales) {
    scaling.short_mscale = rope.number("short_mscale");
    scaling.long_mscale = rope.number("long_mscale");
  }
  const auto pairs = static_cast<std::size_t>(config.rotary_dim() / 2);
  if (scaling.short_factor.size() != pairs || scaling.long_factor.size() != pairs)
    rope.refuse("short_factor and long_factor must have one number for each of the " + std::to_string(pairs) +
                " pairs, not " + std::to_string(scaling.short_factor.size()) + " and " +
                std::to_string(scaling.long_factor.size()));
  return scaling;
}

/// HF goes by alpha alone for sequences of up to max_position_embeddings, which longer ones are not here;
/// without it "dynamic" would depend on what is read.
NtkAlphaScaling ntk_alpha(ConfigReader& rope) {
  rope.skip({"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  const double alpha = rope.optional_number("alpha").value_or(0);
  if (alpha > 0) return {alpha};
  rope.refuse("rope_type = \"dynamic\" needs an alpha above 0");
  return {};
}

std::string type_of(ConfigReader& rope) {
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  const std::string older = rope.text_or("type", type);
  if (older != type) rope.refuse("type = \"" + older + "\" contradicts rope_type = \"" + type + "\"");
  return type;
}

RopeScaling longrope_or_none(ConfigReader& top, ConfigReader& rope, const std::string& type,
                             const ModelConfig& config) {
  if (type == "longrope" || type == "su" || type == "yarn") return longrope(top, rope, config);
  rope.unsupported("rope_type", type, "default, longrope");
  return {};
}

RopeScaling scaling_of(ConfigReader& top, ConfigReader& rope, const Family& family,
                       const ModelConfig& config) {
  const std::string type = type_of(rope);
  if (type == "default" || (family.rope.multimodal && type == "mrope")) return {};
  if (family.rope.longrope) return longrope_or_none(top, rope, type, config);
  if (family.rope.ntk_alpha && type == "dynamic") return ntk_alpha(rope);
  if (family.rope.proportional && type == "proportional")
    return ProportionalScaling{.factor = rope.number_or("factor", 1)};
  if (type == "linear") return linear(rope);
  if (type == "llama3") return llama3(top, rope);
  if (type == "yarn") return yarn(top, rope, config);
  rope.unsupported("rope_type", type, "default, linear, llama3, yarn");
  return {};
}

/// The attention's scores grow with the stated factor (DeepSeek-V3, yarn_get_mscale): by mscale^2.
double scaled_score(double factor, double mscale_all_dim, Index head_dim) {
  const double mscale = factor <= 1 ? 1 : 0.1 * mscale_all_dim * std::log(factor) + 1;
  return mscale * mscale / std::sqrt(static_cast<double>(head_dim));
}

void read_scaling(ConfigReader& top, ConfigReader& rope, const Family& family, ModelConfig& config) {
  config.rope_scaling = scaling_of(top, rope, family, config);
  if (family.rope.multimodal) rope.skip({"mrope_section", "mrope_interleaved", "interleaved"});
  const auto* yarn = std::get_if<YarnScaling>(&config.rope_scaling);
  if (!family.latent_attention || !yarn || yarn->mscale_all_dim == 0) return;
  const double scale = scaled_score(rope.number("factor"), yarn->mscale_all_dim, config.head_dim);
  if (family.rope.yarn_scales_scores)
    config.score_scale = scale;
  else
    config.remarks.push_back(
        "mscale_all_dim of yarn does not scale scores, as in transformers 4.57; 5.15 scales them by " +
        number_text(scale * std::sqrt(static_cast<double>(config.head_dim))));
}

/// The share of a head that turns; a family without a fallback turns the whole.
double partial_of(ConfigReader& rope, const Family& family, double fallback) {
  const double factor = rope.number_or(kPartialKey, fallback);
  if (!family.rope.partial && factor != 1)
    rope.refuse(std::string(kPartialKey) + " = " + number_text(factor) +
                " must be 1: the whole head is turned in this family");
  return factor;
}

/// MiniMax says how many elements of a head turn.
void read_rotary_width(ConfigReader& top, ModelConfig& config) {
  const Index width = top.integer_or("rotary_dim", config.rotary_dim());
  if (width < 1 || width > config.head_dim)
    return top.refuse("rotary_dim = " + std::to_string(width) +
                      " must lie between 1 and head_dim = " + std::to_string(config.head_dim));
  config.partial_rotary_factor = static_cast<double>(width) / static_cast<double>(config.head_dim);
}

/// Where both say it, they say the same; of families that 4.57 does not know the inner one holds.
void check_both(ConfigReader& top, ConfigReader& rope, const Family& family, const std::string& top_key,
                const std::string& key) {
  if (!family.in_both_versions || !top.has(top_key) || !rope.has(key)) return;
  if (top.number_or(top_key, 0) != rope.number_or(key, 0))
    top.refuse(top_key + " and rope_parameters." + key + " differ");
}

double theta_of(ConfigReader& top, ConfigReader& rope, const Family& family, const std::string& top_key,
                double fallback) {
  check_both(top, rope, family, top_key, "rope_theta");
  return rope.number_or("rope_theta", fallback);
}

/// One object. Of a partial_rotary_factor beside it 5.15 makes a fallback, but with a scaling
/// it is the one that holds.
void read_one(ConfigReader& top, ConfigReader& rope, const Family& family, ModelConfig& config) {
  config.rope_theta = theta_of(top, rope, family, "rope_theta", config.rope_theta);
  check_both(top, rope, family, kPartialKey, kPartialKey);
  const double beside = config.partial_rotary_factor;
  config.partial_rotary_factor =
      partial_of(rope, family, family.rope.partial ? config.partial_rotary_factor : 1.0);
  read_scaling(top, rope, family, config);
  if (family.rope.partial && !family.rope.windows && top.has(kPartialKey) && type_of(rope) != "default")
    config.partial_rotary_factor = beside;
  rope.refuse_the_rest();
}

/// An object a layer type. 4.57, which has one number for the layers with a window, cannot say a scaling.
void read_windows_rope(ConfigReader& top, ConfigReader& rope, const Family& family, ModelConfig& config) {
  WindowRope& of_windows = *config.window_rope;
  of_windows.theta = theta_of(top, rope, family, family.rope.windows->theta_key, of_windows.theta);
  of_windows.partial_rotary_factor = partial_of(rope, family, family.rope.partial_inside.value_or(1));
  if (!family.in_both_versions)
    of_windows.scaling = scaling_of(top, rope, family, config);
  else if (const std::string type = type_of(rope); type != "default")
    rope.unsupported("rope_type", type, "default");
  rope.refuse_the_rest();
}

void read_by_type(ConfigReader& top, ConfigReader& parameters, const Family& family, ModelConfig& config) {
  if (parameters.has("full_attention")) {
    ConfigReader rope = parameters.object("full_attention");
    config.partial_rotary_factor = family.rope.partial_inside.value_or(1);
    config.rope_scaling = {};
    read_one(top, rope, family, config);
  }
  if (parameters.has("sliding_attention")) {
    ConfigReader rope = parameters.object("sliding_attention");
    read_windows_rope(top, rope, family, config);
  }
  parameters.skip({"rope_type"});  // which 5.15 leaves beside them
  parameters.refuse_the_rest();
}

/// Of a family with an object a layer type: whether keys beside it are read, too.
bool reads_older_keys(const Family& family) {
  return !family.rope.windows || !family.rope.windows->theta_key.empty();
}

/// One object for all layers, or one a layer type (Gemma3).
void read_parameters(ConfigReader& top, const Family& family, ModelConfig& config) {
  ConfigReader parameters = top.object("rope_parameters");
  const bool by_type = parameters.has("full_attention") || parameters.has("sliding_attention");
  if (family.rope.windows && by_type) return read_by_type(top, parameters, family, config);
  if (family.rope.windows && !reads_older_keys(family))
    top.refuse("rope_parameters must have an object for full_attention and one for sliding_attention");
  read_one(top, parameters, family, config);
}

/// What holds where no object of a layer type says it. 5.15 passes over older keys in families of its own
/// that have such objects; without the objects they would say something else than it computes.
void take_fallbacks(ConfigReader& reader, const Family& family, ModelConfig& config) {
  const RopeRule& rule = family.rope;
  if (!reads_older_keys(family)) {
    if (!reader.has("rope_parameters"))
      for (const char* key : {"rope_theta", kPartialKey, "rope_scaling"})
        if (reader.has(key))
          reader.refuse(std::string(key) + " is not read in this family; say it in rope_parameters");
    reader.skip({"rope_theta", kPartialKey, "rope_scaling"});
    config.rope_theta = rule.theta;
    config.partial_rotary_factor = rule.partial.value_or(1.0);
    config.window_rope =
        WindowRope{.theta = rule.windows->theta, .partial_rotary_factor = rule.windows->partial};
    if (rule.proportional) config.rope_scaling = ProportionalScaling{};
    return;
  }
  config.rope_theta = reader.number_or("rope_theta", rule.theta);
  config.partial_rotary_factor = partial_of(reader, family, rule.partial.value_or(1.0));
  if (!rule.windows) return;
  config.window_rope =
      WindowRope{.theta = rule.windows->theta,
                 .partial_rotary_factor = reader.number_or(kPartialKey, rule.windows->partial)};
  if (!rule.windows->theta_key.empty())
    config.window_rope->theta = reader.number_or(rule.windows->theta_key, rule.windows->theta);
}

}  // namespace

void read_rope(ConfigReader& reader, const Family& family, ModelConfig& config) {
  take_fallbacks(reader, family, config);
  if (family.rope.by_width) read_rotary_width(reader, config);
  reader.skip({"original_max_position_embeddings"});  // without a scaling it says nothing
  if (family.latent_attention && family.rope.pairs == RopePairs::kInterleavedToHalves)
    config.rope_interleave = reader.boolean_or("rope_interleave", true);
  if (family.rope.stated && !reader.stated("rope_scaling") && !reader.stated("rope_parameters"))
    reader.refuse(
        "key rope_scaling is missing; HF then takes yarn with a factor of 32. Write it, or null for none");
  const bool has_scaling = reads_older_keys(family) && reader.has("rope_scaling");
  if (has_scaling) {
    ConfigReader rope = reader.object("rope_scaling");
    read_scaling(reader, rope, family, config);
    rope.refuse_the_rest();
  }
  if (!reader.has("rope_parameters")) return;
  // 4.57 goes by the one and 5.15 by the other; beside a null 5.15 goes by rope_parameters.
  const RopeScaling scaling = config.rope_scaling;
  read_parameters(reader, family, config);
  if (has_scaling && config.rope_scaling != scaling)
    reader.refuse("rope_scaling and rope_parameters say different things; remove one");
}

}  // namespace moeloom
