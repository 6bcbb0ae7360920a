// Whole attention layers against the reference's: a specification made from a block's config, as a family's
// row makes it, and every gradient.
#include "model/mixer/mixer_layer.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "attention/attention_layer_testing.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// What a class says that its config does not.
struct ReferenceClass {
  QkNorm qk_norm = QkNorm::kNone;
  RopePairs pairs = RopePairs::kHalfSplit;
  bool biased_output = true;  // where attention_bias says that there are biases
  std::string output = "o_proj";
  std::string query_norm = "q_norm", key_norm = "k_norm";
};

const std::map<std::string, ReferenceClass> kClasses = {
    {"GptOssAttention", {}},
    {"GraniteMoeAttention", {}},
    {"Llama4TextAttention", {.pairs = RopePairs::kInterleaved}},
    {"Qwen3NextAttention", {.qk_norm = QkNorm::kPerHead}},
    {"Lfm2Attention",
     {.qk_norm = QkNorm::kPerHead,
      .output = "out_proj",
      .query_norm = "q_layernorm",
      .key_norm = "k_layernorm"}},
    {"FlexOlmoAttention", {.qk_norm = QkNorm::kWholeWidth}},
    {"Glm4MoeAttention", {.qk_norm = QkNorm::kPerHead, .biased_output = false}},
    {"Dots1Attention", {.qk_norm = QkNorm::kPerHead}},
    {"DeepseekV2Attention", {.pairs = RopePairs::kInterleaved}}};

struct GoldenLayer {
  explicit GoldenLayer(const std::filesystem::path& folder)
      : block(folder), hf(block.meta.text("hf")), reference(kClasses.at(hf)), spec(spec_of()) {}

  GoldenBlock block;
  std::string hf;
  ReferenceClass reference;
  AttentionSpec spec;

  bool has(const std::string& weight) const { return block.tensors.has("weight." + weight); }
  Index rows(const std::string& weight) const { return block.shape("weight." + weight).front(); }

  AttentionSpec spec_of() const;
  LatentSpec latent() const;
  void take_what_llama4_says(AttentionSpec& s) const;
  RopeTable rope(Index positions) const;
};

LatentSpec GoldenLayer::latent() const {
  const Document& c = block.config;
  return {.q_rank = c.integer_or("q_lora_rank", 0),
          .kv_rank = c.integer("kv_lora_rank"),
          .nope_dim = c.integer("qk_nope_head_dim"),
          .rope_dim = c.integer("qk_rope_head_dim"),
          .norm = {.eps = 1e-6f}};
}

/// A layer with rope norms q and k behind it; one without has a temperature.
void GoldenLayer::take_what_llama4_says(AttentionSpec& s) const {
  const Document& c = block.config;
  if (!c.has("floor_scale")) {
    s.qk_norm = c.boolean("use_qk_norm") ? QkNorm::kPerHead : QkNorm::kNone;
    s.qk_norm_after_rope = true;
    s.qk_norm_weight = false;
    return;
  }
  s.rope = kNoRope;
  s.temperature = QueryTemperature{.scale = c.number("attn_scale"), .floor = c.number("floor_scale")};
}

AttentionSpec GoldenLayer::spec_of() const {
  const Document& c = block.config;
  const std::string mask = c.text("mask");
  AttentionSpec s;
  s.prefix = kPrefix;
  s.hidden_size = c.integer("hidden_size");
  s.heads = s.kv_heads = c.integer("num_attention_heads");
  if (hf.starts_with("Deepseek")) {
    s.latent = latent();
    s.head_dim = s.latent->nope_dim + s.latent->rope_dim;
    s.value_dim = c.integer("v_head_dim");
  } else {
    s.kv_heads = c.integer("num_key_value_heads");
    s.head_dim = s.value_dim = c.integer("head_dim");
  }
  s.qk_norm = c.boolean_or("use_qk_norm", true) ? reference.qk_norm : QkNorm::kNone;
  s.norm = {.eps = static_cast<float>(c.number_or("rms_norm_eps", c.number_or("norm_eps", 1e-6))),
            .weight_offset = hf.starts_with("Qwen3Next") ? 1.0f : 0.0f};
  s.qkv_bias = c.boolean_or("attention_bias", false);
  s.output_bias = s.qkv_bias && reference.biased_output;
  if (hf.starts_with("Qwen3Next")) s.gate = OutputGate{.with_query = true};
  s.sinks = hf.starts_with("GptOss");
  s.window = mask == "sliding" ? c.integer("sliding_window") : 0;
  s.chunk = mask == "chunked" ? c.integer("attention_chunk_size") : 0;
  s.scale =
      static_cast<float>(c.number_or("attention_multiplier", 1 / std::sqrt(static_cast<double>(s.head_dim))));
  if (hf.starts_with("Llama4")) take_what_llama4_says(s);
  return s;
}

RopeTable GoldenLayer::rope(Index positions) const {
  const Document& c = block.config;
  const Index size = spec.latent ? spec.latent->rope_dim : spec.head_dim;
  return make_rope_table(
      positions,
      {.rotary_dim = static_cast<Index>(static_cast<double>(size) * c.number_or("partial_rotary_factor", 1)),
       .theta = c.number("rope_theta"),
       .pairs = reference.pairs});
}

/// Rows of a tensor of the block that are rows of a parameter.
struct Part {
  std::string tensor;
  Index first_row, rows;
  std::string parameter;
  Index row_begin;
};

/// q_proj has each head's query and then its gate; the parameter all queries and then all gates.
void add_queries(const AttentionSpec& s, const std::string& end, std::vector<Part>& parts) {
  const std::string to = kPrefix + "qkv_proj" + end;
  if (!s.gate) return parts.push_back({"q_proj" + end, 0, s.query_width(), to, 0});
  for (Index head = 0; head < s.heads; ++head)
    for (Index part = 0; part < 2; ++part)
      parts.push_back({"q_proj" + end, (2 * head + part) * s.head_dim, s.head_dim, to,
                       part * s.query_width() + head * s.head_dim});
}

std::vector<Part> parts_of(const GoldenLayer& c) {
  const AttentionSpec& s = c.spec;
  std::vector<Part> parts;
  const auto whole = [&](const std::string& tensor, const std::string& parameter) {
    for (const std::string end : {".weight", ".bias"})
      if (c.has(tensor + end))
        parts.push_back({tensor + end, 0, c.rows(tensor + end), kPrefix + parameter + end, 0});
  };
  for (const char* same :
       {"q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"})
    whole(same, same);
  if (s.latent) whole("q_proj", "q_proj");
  for (const std::string end : {".weight", ".bias"}) {
    if (s.latent || !c.has("q_proj" + end)) continue;
    const Index keys = s.query_width() + s.gate_width();
    add_queries(s, end, parts);
    parts.push_back({"k_proj" + end, 0, s.key_width(), kPrefix + "qkv_proj" + end, keys});
    parts.push_back({"v_proj" + end, 0, s.value_width(), kPrefix + "qkv_proj" + end, keys + s.key_width()});
  }
  whole(c.reference.query_norm, "q_norm");
  whole(c.reference.key_norm, "k_norm");
  whole(c.reference.output, "o_proj");
  if (c.has("sinks")) parts.push_back({"sinks", 0, s.heads, kPrefix + "sinks", 0});
  return parts;
}

/// Numbers of a part in the tensor and in the parameter, one behind the other in both.
std::pair<std::span<float>, std::span<float>> numbers_of(const Part& part, std::vector<float>& tensor,
                                                         Index tensor_rows, std::span<float> parameter) {
  const std::size_t cols = tensor.size() / at(tensor_rows), count = at(part.rows) * cols;
  return {std::span(tensor).subspan(at(part.first_row) * cols, count),
          parameter.subspan(at(part.row_begin) * cols, count)};
}

void load(const GoldenLayer& c, const ParameterStore& store, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    std::vector<float> tensor = c.block.tensors.floats("weight." + part.tensor);
    const auto [from, to] =
        numbers_of(part, tensor, c.rows(part.tensor), store.find(part.parameter).value.flat());
    std::ranges::copy(from, to.begin());
  }
}

/// Gradients by the names of the block.
std::map<std::string, std::vector<float>> gradients(const GoldenLayer& c, const ParameterStore& store,
                                                    const std::vector<Part>& parts) {
  std::map<std::string, std::vector<float>> all;
  for (const Part& part : parts) {
    std::vector<float>& tensor = all[part.tensor];
    tensor.resize(c.block.tensors.floats("weight." + part.tensor).size());
    const auto [to, from] =
        numbers_of(part, tensor, c.rows(part.tensor), store.find(part.parameter).grad.flat());
    std::ranges::copy(from, to.begin());
  }
  return all;
}

/// a - b, in fp32: both are near the residual, which costs a few units of its last place.
std::vector<float> difference(std::span<const float> a, std::span<const float> b) {
  std::vector<float> d(a.size());
  std::ranges::transform(a, b, d.begin(), std::minus<>());
  return d;
}

void expect_golden(const GoldenLayer& c, bool fused) {
  SCOPED_TRACE(c.block.name + (fused ? " fused" : " reference"));
  AttentionCase shapes{.name = c.block.name, .spec = c.spec, .norm = {}};
  const ParameterStore store(parameters_of(shapes));
  const std::vector<Part> parts = parts_of(c);
  load(c, store, parts);
  const auto ids = c.block.tensors.integers("input.position_ids");
  const std::vector<std::int32_t> positions(ids.begin(), ids.end());
  const auto shape = c.block.shape("input.hidden_states");
  const RopeTable rope = c.rope(shape[1]);
  const MixerContext context{shape[0], shape[1], positions, std::span(&rope, 1)};
  const KernelTable kernels = norm_and_rope_kernels(fused);

  MixerLayer layer(c.spec, std::nullopt, std::nullopt, store);
  MixerWorkspace workspace;
  const auto input = c.block.tensors.floats("input.hidden_states");
  const auto upstream = c.block.tensors.floats("upstream_grad.output");
  Matrix hidden = Matrix::copy_of({input.data(), shape[0] * shape[1], shape[2]});
  Matrix d_hidden = Matrix::copy_of({upstream.data(), shape[0] * shape[1], shape[2]});
  layer.forward(kernels, context, hidden);
  layer.backward(kernels, context, d_hidden, workspace);

  const auto error = [&](std::span<const float> got, const std::string& tensor) {
    return golden_error(got, testing::doubles_in(c.block.tensors, tensor), kBlockFloor);
  };
  EXPECT_LE(error(difference(hidden.view().flat(), input), "output"), 1e-5);
  EXPECT_LE(error(difference(d_hidden.view().flat(), upstream), "grad.input.hidden_states"), 2e-5);
  const auto got = gradients(c, store, parts);
  for (const std::string& name : c.block.names_after("grad.weight.")) {
    ASSERT_TRUE(got.contains(name)) << name << " has no place in the layer";
    EXPECT_LE(error(got.at(name), "grad.weight." + name), 2e-5) << name;
  }
}

TEST(GoldenAttention, HasTheOutputAndEveryGradientOfTheReference) {
  std::map<std::string, int> compared;
  for (const auto& folder : golden_cases("blocks", read_by("GoldenAttention"))) {
    const std::string hf = golden_meta(folder).text("hf");
    ASSERT_TRUE(kClasses.contains(hf)) << folder << ": no rule for " << hf;
    const GoldenLayer c(folder);
    for (const bool fused : {false, true}) expect_golden(c, fused);
    ++compared[hf];
  }
  for (const auto& [hf, count] : compared)
    std::cout << "golden: GoldenAttention compared " << count << " of " << hf << '\n';
}

}  // namespace
}  // namespace moeloom
