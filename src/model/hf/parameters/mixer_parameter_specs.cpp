// The parameters of what mixes tokens: attention, short convolutions, gated delta nets.
#include <numeric>
#include <utility>

#include "hf/parameters/parameter_parts.hpp"

namespace moeloom {
namespace {

void add_latent(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  const LatentSpec& latent = *spec.latent;
  const std::string& at = spec.prefix;
  const Index d = spec.hidden_size;
  if (latent.q_rank > 0) {
    add_linear(specs, naming, at + "q_a_proj", {latent.q_rank, d, spec.qkv_bias});
    add_norm(specs, naming, NormSpec{at + "q_a_layernorm.weight", latent.q_rank, latent.norm});
    add_linear(specs, naming, at + "q_b_proj", {spec.query_width(), latent.q_rank});
  } else {
    add_linear(specs, naming, at + "q_proj", {spec.query_width(), d});
  }
  add_linear(specs, naming, at + "kv_a_proj_with_mqa", {latent.key_value_low_width(), d, spec.qkv_bias});
  add_norm(specs, naming, NormSpec{at + "kv_a_layernorm.weight", latent.kv_rank, latent.norm});
  add_linear(specs, naming, at + "kv_b_proj", {spec.key_value_width(), latent.kv_rank});
}

void add_qk_norms(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  if (spec.qk_norm == QkNorm::kNone || !spec.qk_norm_weight) return;
  const bool whole = spec.qk_norm == QkNorm::kWholeWidth;
  const AttentionNames& names = naming.family.attention;
  const auto add = [&](const char* name, const std::string& in_file, Index width) {
    add_norm(specs, {spec.prefix + name + ".weight", whole ? width : spec.head_dim, spec.norm},
             naming.in_file(spec.prefix + in_file + ".weight"));
  };
  add("q_norm", names.query_norm, spec.query_width());
  if (!spec.keys_of) add("k_norm", names.key_norm, spec.key_width());
}

/// q_proj of the file has each head's query rows and then its gate rows; the parameter all queries, then all
/// gates, so that attention reads them as it reads those without a gate. `cols`: 1 for the bias, whose tensor
/// has one dimension.
void add_gated_queries(ParameterSpec& parameter, const AttentionSpec& spec, const std::string& in_file,
                       Index cols) {
  const Index size = spec.head_dim, all = spec.query_width() + spec.gate_width();
  const std::vector<Index> shape = parameter.is_matrix ? std::vector{all, cols} : std::vector{all};
  for (Index part = 0; part < 2; ++part)
    for (Index head = 0; head < spec.heads; ++head) {
      parameter.slices.push_back({.name = in_file,
                                  .row_begin = parameter.rows,
                                  .rows = size,
                                  .shape = shape,
                                  .source_begin = (2 * head + part) * size * cols});
      parameter.rows += size;
    }
}

/// Behind the gated queries the rows of `keys_and_values`.
void append(ParameterSpec& parameter, const ParameterSpec& keys_and_values) {
  for (HfSlice slice : keys_and_values.slices) {
    slice.row_begin += parameter.rows;
    parameter.slices.push_back(std::move(slice));
  }
  parameter.rows += keys_and_values.rows;
}

void add_gated_projection(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  const auto parts = [&](const char* end) {
    return Parts{{naming.in_file(spec.prefix + "k_proj") + end, spec.key_width()},
                 {naming.in_file(spec.prefix + "v_proj") + end, spec.value_width()}};
  };
  const auto add = [&](const char* end, const ParameterSpec& keys_and_values) {
    ParameterSpec parameter = keys_and_values;
    parameter.slices.clear();
    parameter.rows = 0;
    add_gated_queries(parameter, spec, naming.in_file(spec.prefix + "q_proj") + end, parameter.cols);
    append(parameter, keys_and_values);
    specs.push_back(std::move(parameter));
  };
  const std::string name = spec.prefix + "qkv_proj";
  add(".weight", matrix(name + ".weight", spec.hidden_size, parts(".weight")));
  if (spec.qkv_bias) add(".bias", bias(name + ".bias", parts(".bias")));
}

void add_projection(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  if (spec.gate_rows() > 0) return add_gated_projection(specs, naming, spec);
  const std::string& at = spec.prefix;
  const std::string file = naming.in_file(at);
  Parts parts = {{file + "q_proj", spec.query_width()}};
  if (!spec.keys_of) parts.emplace_back(file + "k_proj", spec.key_width());
  if (!spec.keys_of && spec.value_rows() > 0) parts.emplace_back(file + "v_proj", spec.value_rows());
  add_fused(specs, at + "qkv_proj", file + "qkv_proj", spec.hidden_size,
            {parts, naming.family.fused_qkv, spec.qkv_bias});
}

/// One number a head; gpt_oss draws them as it draws weights.
ParameterSpec sinks(const Naming& naming, const AttentionSpec& spec) {
  const std::string name = spec.prefix + "sinks";
  const std::string in_file = naming.in_file(spec.prefix + naming.family.attention.sinks);
  ParameterSpec parameter = bias(name, {{in_file, spec.heads}});
  parameter.init = Init::kNormal;
  return parameter;
}

void add_parameters(Specs& specs, const Naming& naming, const AttentionSpec& spec) {
  const std::string& at = spec.prefix;
  if (spec.latent) {
    add_latent(specs, naming, spec);
  } else {
    add_projection(specs, naming, spec);
    add_qk_norms(specs, naming, spec);
  }
  if (spec.gate && !spec.gate->with_query)
    add_linear_as(specs, at + "gate_proj", naming.in_file(at + naming.family.attention.gate),
                  {spec.gate_width(), spec.hidden_size});
  if (spec.sinks) specs.push_back(sinks(naming, spec));
  add_linear_as(specs, at + "o_proj", naming.in_file(at + naming.family.attention.output),
                {spec.hidden_size, spec.output_width(), spec.output_bias});
}

ParameterSpec with_init(ParameterSpec spec, Init init) {
  spec.init = init;
  return spec;
}

/// [channels, taps], in the file [channels, 1, taps].
void add_convolution(Specs& specs, const Naming& naming, const std::string& name, LinearShape shape) {
  add_linear(specs, naming, name, shape);
  ParameterSpec& weight = specs[specs.size() - (shape.with_bias ? 2 : 1)];
  weight.slices.front().shape = {shape.rows, 1, shape.cols};
}

void add_parameters(Specs& specs, const Naming& naming, const ShortConvSpec& spec) {
  const Index d = spec.hidden_size;
  add_linear(specs, naming, spec.prefix + "in_proj", {3 * d, d, spec.bias});
  add_convolution(specs, naming, spec.prefix + "conv", {d, spec.taps, spec.bias});
  add_linear(specs, naming, spec.prefix + "out_proj", {d, d, spec.bias});
}

/// Rows of a tensor that goes by key head: of each head `size` rows from `first` on, of the `block` that it
/// has.
void add_by_key_head(ParameterSpec& parameter, const std::string& in_file, Index heads, Index block,
                     Index first, Index size) {
  for (Index head = 0; head < heads; ++head) {
    parameter.slices.push_back({.name = in_file,
                                .row_begin = parameter.rows,
                                .rows = size,
                                .shape = {heads * block, parameter.cols},
                                .source_begin = (head * block + first) * parameter.cols});
    parameter.rows += size;
  }
}

/// Rows q, k, v, z, b, a, of all heads each.
ParameterSpec delta_net_projection(const Naming& naming, const DeltaNetSpec& spec) {
  const std::string name = spec.prefix + "in_proj.weight", file = naming.in_file(spec.prefix) + "in_proj_";
  if (naming.family.delta_net == DeltaNetLayout::kByPart)
    return matrix(name, spec.hidden_size,
                  {{file + "qkv.weight", spec.mixed_width()},
                   {file + "z.weight", spec.value_width()},
                   {file + "b.weight", spec.value_heads},
                   {file + "a.weight", spec.value_heads}});
  ParameterSpec parameter = matrix(name, spec.hidden_size, {});
  const auto add = [&](const char* tensor, const std::vector<Index>& sizes) {
    const Index block = std::accumulate(sizes.begin(), sizes.end(), Index{0});
    Index first = 0;
    for (const Index size : sizes) {
      add_by_key_head(parameter, file + tensor, spec.key_heads, block, first, size);
      first += size;
    }
  };
  const Index group = spec.value_heads / spec.key_heads, values = group * spec.value_dim;
  add("qkvz.weight", {spec.key_dim, spec.key_dim, values, values});
  add("ba.weight", {group, group});
  return parameter;
}

void add_parameters(Specs& specs, const Naming& naming, const DeltaNetSpec& spec) {
  const std::string& at = spec.prefix;
  const auto numbers = [&](const std::string& name, Init init) {
    specs.push_back(with_init(bias(at + name, {{naming.in_file(at + name), spec.value_heads}}), init));
  };
  specs.push_back(delta_net_projection(naming, spec));
  add_convolution(specs, naming, at + "conv1d", {spec.mixed_width(), spec.taps});
  numbers("A_log", Init::kLogUniform);
  numbers("dt_bias", Init::kOnes);
  add_norm(specs, naming, NormSpec{at + "norm.weight", spec.value_dim, spec.norm});
  add_linear(specs, naming, at + "out_proj", {spec.hidden_size, spec.value_width()});
}

}  // namespace

void add_mixer(Specs& specs, const Naming& naming, const MixerSpec& mixer) {
  std::visit([&](const auto& spec) { add_parameters(specs, naming, spec); }, mixer);
}

}  // namespace moeloom
