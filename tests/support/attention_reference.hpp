// Attention's half of a decoder layer by its definition, in double, one number at a time: what gradients of
// the layer are differences of.
#pragma once

#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moeloom::testing {

using Doubles = std::vector<double>;

struct AttentionReference {
  AttentionSpec spec;
  std::optional<NormSpec> norm;
  std::optional<NormSpec> output_norm;
  const RopeTable* rope = nullptr;        // half-split pairs
  std::map<std::string, Doubles> values;  // parameters by name
  Index length = 0;                       // of a sequence
  std::vector<Index> segment_offsets;     // or empty: sequences
  double residual_scale = 1;

  /// y [rows of the parameter] = w x (+ bias), where there is such a parameter.
  Doubles project(const std::string& module, const Doubles& x) const {
    const Doubles& w = values.at(module + ".weight");
    Doubles y(w.size() / x.size());
    const auto bias = values.find(module + ".bias");
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = bias == values.end() ? 0.0 : bias->second[i];
      for (std::size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
    }
    return y;
  }

  /// Each group of as many numbers as the weight has.
  Doubles normalise(const std::string& name, RmsNormSettings settings, Doubles x) const {
    return by_rms(values.at(name), settings, std::move(x));
  }

  static Doubles by_rms(const Doubles& w, RmsNormSettings settings, Doubles x) {
    for (std::size_t first = 0; first < x.size(); first += w.size()) {
      double mean = 0;
      for (std::size_t j = 0; j < w.size(); ++j) mean += x[first + j] * x[first + j];
      const double inverse = 1 / std::sqrt(mean / static_cast<double>(w.size()) + settings.eps);
      for (std::size_t j = 0; j < w.size(); ++j)
        x[first + j] *= inverse * (static_cast<double>(settings.weight_offset) + w[j]);
    }
    return x;
  }

  Doubles normalise(const NormSpec& spec, Doubles x) const {
    if (spec.kind == NormKind::kRms) return normalise(spec.name, spec.settings, std::move(x));
    const Doubles& w = values.at(spec.name);
    const Doubles bias = spec.kind == NormKind::kLayer ? values.at(spec.bias_name()) : Doubles(w.size(), 0.0);
    const double count = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double value : x) mean += value / count;
    for (const double value : x) variance += (value - mean) * (value - mean) / count;
    for (std::size_t j = 0; j < x.size(); ++j)
      x[j] = (x[j] - mean) / std::sqrt(variance + static_cast<double>(spec.settings.eps)) * w[j] + bias[j];
    return x;
  }

  /// q or k, all heads.
  Doubles normalise_heads(const std::string& name, Doubles x) const {
    if (spec.qk_norm_weight) return normalise(spec.prefix + name, spec.norm, std::move(x));
    const bool whole = spec.qk_norm == QkNorm::kWholeWidth;
    const Doubles ones(whole ? x.size() : at(spec.head_dim), 1.0);
    return by_rms(ones, spec.norm, std::move(x));
  }

  /// The columns from `first` on of each head of `size`.
  void turn(Doubles& x, Index size, Index first, Index position) const {
    const Index half = rope->rotary_dim() / 2;
    for (std::size_t head = at(first); head < x.size(); head += at(size)) {
      for (Index i = 0; i < half; ++i) {
        const double cosine = rope->cosine.row(position)[i];
        const double sine = rope->sine.row(position)[i];
        double& a = x[head + at(i)];
        double& b = x[head + at(half + i)];
        const double turned = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned;
      }
    }
  }

  struct Heads {
    Doubles query = {}, key = {}, value = {}, gate = {};
  };

  static Doubles part(const Doubles& x, Index begin, Index count) {
    return {x.begin() + begin, x.begin() + begin + count};
  }

  Heads projected(const Doubles& x, Index position) const {
    const Doubles qkv = project(spec.prefix + "qkv_proj", x);
    const Index keys = spec.query_width() + spec.gate_rows();
    Heads h{.query = part(qkv, 0, spec.query_width()), .gate = gate(x, qkv)};
    if (!spec.keys_of) {
      h.key = part(qkv, keys, spec.key_width());
      h.value = spec.keys_are_values ? h.key : part(qkv, keys + spec.key_width(), spec.value_width());
      if (spec.value_norm)
        h.value = by_rms(Doubles(at(spec.value_dim), 1.0), {.eps = spec.norm.eps}, h.value);
      for (double& v : h.value) v *= static_cast<double>(spec.value_scale);
    }
    if (spec.qk_norm_after_rope) turn_heads(h, position);
    if (spec.qk_norm != QkNorm::kNone) {
      h.query = normalise_heads("q_norm.weight", h.query);
      if (!spec.keys_of) h.key = normalise_heads("k_norm.weight", h.key);
    }
    if (!spec.qk_norm_after_rope) turn_heads(h, position);
    if (spec.temperature) {
      const double steps = std::floor(static_cast<double>(position + 1) / spec.temperature->floor);
      for (double& q : h.query) q *= 1 + spec.temperature->scale * std::log(1 + steps);
    }
    return h;
  }

  Doubles gate(const Doubles& x, const Doubles& qkv) const {
    if (!spec.gate) return {};
    return spec.gate->with_query ? part(qkv, spec.query_width(), spec.gate_width())
                                 : project(spec.prefix + "gate_proj", x);
  }
  double gated(double gate) const {
    return spec.gate->function == GateFunction::kSigmoid ? 1 / (1 + std::exp(-gate))
                                                         : std::log1p(std::exp(gate));
  }

  void turn_heads(Heads& h, Index position) const {
    if (spec.rope == kNoRope) return;
    turn(h.query, spec.head_dim, 0, position);
    turn(h.key, spec.head_dim, 0, position);
  }

  /// Heads are [nope, rope], as the formulas say.
  Heads latent(const Doubles& x, Index position) const {
    const LatentSpec& l = *spec.latent;
    Heads h{.gate = gate(x, {})};
    if (l.q_rank > 0) {
      const Doubles low = project(spec.prefix + "q_a_proj", x);
      h.query =
          project(spec.prefix + "q_b_proj", normalise(spec.prefix + "q_a_layernorm.weight", l.norm, low));
    } else {
      h.query = project(spec.prefix + "q_proj", x);
    }
    const Doubles low = project(spec.prefix + "kv_a_proj_with_mqa", x);
    const Doubles both = project(spec.prefix + "kv_b_proj", normalise(spec.prefix + "kv_a_layernorm.weight",
                                                                      l.norm, part(low, 0, l.kv_rank)));
    Doubles key_rope = part(low, l.kv_rank, l.rope_dim);
    turn(key_rope, l.rope_dim, 0, position);
    turn(h.query, spec.head_dim, l.nope_dim, position);
    for (Index head = 0; head < spec.heads; ++head) {
      const Doubles mine = part(both, head * (l.nope_dim + spec.value_dim), l.nope_dim + spec.value_dim);
      h.key.insert(h.key.end(), mine.begin(), mine.begin() + l.nope_dim);
      h.key.insert(h.key.end(), key_rope.begin(), key_rope.end());
      h.value.insert(h.value.end(), mine.begin() + l.nope_dim, mine.end());
    }
    return h;
  }

  /// Context of query i of one sequence.
  Doubles attend(std::span<const Heads> heads, Index i) const {
    Doubles context(at(spec.output_width()));
    for (Index head = 0; head < spec.heads; ++head) {
      const Index kv = head / (spec.heads / spec.kv_heads);
      Doubles weights;
      double sum = spec.sinks ? std::exp(values.at(spec.prefix + "sinks")[at(head)]) : 0.0;
      const Index of_window = spec.window > 0 ? std::max<Index>(0, i - spec.window + 1) : 0;
      const Index first = spec.chunk > 0 ? std::max(of_window, i / spec.chunk * spec.chunk) : of_window;
      for (Index j = first; j <= i; ++j) {
        double score = 0;
        for (Index d = 0; d < spec.head_dim; ++d)
          score +=
              heads[at(i)].query[at(head * spec.head_dim + d)] * heads[at(j)].key[at(kv * spec.head_dim + d)];
        sum += weights.emplace_back(std::exp(score * static_cast<double>(spec.scale)));
      }
      for (Index j = first; j <= i; ++j)
        for (Index d = 0; d < spec.value_dim; ++d)
          context[at(head * spec.value_dim + d)] +=
              weights[at(j - first)] / sum * heads[at(j)].value[at(kv * spec.value_dim + d)];
    }
    const Doubles& gate = heads[at(i)].gate;
    for (std::size_t j = 0; j < context.size() && spec.gate; ++j)
      context[j] *= gated(gate[j / (context.size() / gate.size())]);
    return context;
  }

  std::vector<Index> offsets(const Doubles& hidden) const {
    std::vector<Index> ends = segment_offsets;
    if (ends.empty())
      for (Index t = 0; t <= std::ssize(hidden) / spec.hidden_size; t += length) ends.push_back(t);
    return ends;
  }

  /// Of every token.
  std::vector<Heads> heads_of(const Doubles& hidden) const {
    std::vector<Heads> heads;
    const std::vector<Index> ends = offsets(hidden);
    for (std::size_t s = 0; s + 1 < ends.size(); ++s)
      for (Index t = ends[s]; t < ends[s + 1]; ++t) {
        const Doubles row = part(hidden, t * spec.hidden_size, spec.hidden_size);
        const Doubles x = norm ? normalise(*norm, row) : row;
        heads.push_back(spec.latent ? latent(x, t - ends[s]) : projected(x, t - ends[s]));
      }
    return heads;
  }

  /// hidden [T, D] with attention added; lent: heads whose keys and values are read.
  Doubles forward(const Doubles& hidden, const std::vector<Heads>* lent = nullptr) const {
    const std::size_t width = at(spec.hidden_size);
    Doubles out = hidden;
    std::vector<Heads> heads = heads_of(hidden);
    for (std::size_t t = 0; t < heads.size() && lent != nullptr; ++t) {
      heads[t].key = (*lent)[t].key;
      heads[t].value = (*lent)[t].value;
    }
    const std::vector<Index> ends = offsets(hidden);
    for (std::size_t s = 0; s + 1 < ends.size(); ++s)
      for (Index t = ends[s]; t < ends[s + 1]; ++t) {
        const auto segment = std::span(heads).subspan(at(ends[s]), at(ends[s + 1] - ends[s]));
        Doubles y = project(spec.prefix + "o_proj", attend(segment, t - ends[s]));
        if (output_norm) y = normalise(*output_norm, y);
        for (std::size_t j = 0; j < width; ++j) out[at(t) * width + j] += residual_scale * y[j];
      }
    return out;
  }
};

}  // namespace moeloom::testing
