// What does a token mixer take beside its own dense products, forward and backward?
//
//   build/bench/mixer_bench
//   build/bench/mixer_bench --tokens 8192 --threads 2
//   build/bench/mixer_bench --config bench/model/shapes/qwen3_next.json --config
//   bench/model/shapes/qwen3_5_moe.json
//
// In each round, in turn: the layer of one kind of mixer, norm and residual included, forward and backward;
// then the dense products of its projections alone, the same both ways. `of_layer` is the products' time over
// the layer's: what is missing to 1 is attention's scores, the gated delta rule, convolutions, norms and
// gates. Medians of ratios within a round.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "model/mixer/mixer_layer.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cstdio>
#include <deque>
#include <numeric>
#include <set>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 4096, hidden = 1024, heads = 16, kv_heads = 4, head_dim = 64;
  Index key_heads = 4, value_heads = 8, delta_dim = 128;
  int threads = 1, samples = 9;
  std::vector<std::string> configs;
  std::string json;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("mixer_bench: a token mixer beside its own dense products");
  bench::add_sizes(known, {{"tokens", &o.tokens, "of one sequence"},
                           {"hidden", &o.hidden, "hidden size"},
                           {"heads", &o.heads, "attention heads"},
                           {"kv-heads", &o.kv_heads, "key-value heads"},
                           {"head-dim", &o.head_dim, "size of a head of attention"},
                           {"key-heads", &o.key_heads, "heads of a delta net's keys"},
                           {"value-heads", &o.value_heads, "heads of a delta net's values"},
                           {"delta-dim", &o.delta_dim, "size of both"}});
  known.add_options()("threads", po::value(&o.threads)->default_value(o.threads), "threads");
  known.add_options()("config", po::value(&o.configs)->composing(),
                      "a config.json whose mixers come in place of the sizes' (several: in turn)");
  bench::add_row_options(known, o.samples, "rounds", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

/// A model of one layer of each kind of mixer.
ModelConfig model_of(const std::string& kind, const Options& o) {
  ModelConfig m;
  m.model_type = kind == "short convolution" ? "lfm2_moe" : "qwen3_next";
  m.vocab_size = 8;
  m.hidden_size = o.hidden;
  m.num_hidden_layers = 1;
  m.num_attention_heads = o.heads;
  m.num_key_value_heads = o.kv_heads;
  m.head_dim = o.head_dim;
  m.num_experts = 1;
  m.num_experts_per_tok = 1;
  m.moe_intermediate_size = m.shared_expert_intermediate_size = 8;
  m.attention_layers = {kind == "attention" ? 1 : 0};
  m.conv_taps = 4;
  m.linear_num_key_heads = o.key_heads;
  m.linear_num_value_heads = o.value_heads;
  m.linear_key_head_dim = m.linear_value_head_dim = o.delta_dim;
  return m;
}

/// The weights of one layer's mixer, what enters it, and room for what its projections give.
struct Subject {
  ModelConfig config;
  LayerSpec spec;
  ParameterStore store;
  KernelTable kernels = bench::model_kernels(true, DType::kF32);
  MixerLayer layer;
  MixerWorkspace workspace;
  std::vector<std::int32_t> positions;
  std::vector<RopeTable> ropes;
  std::vector<Linear> products;
  Matrix hidden, d_hidden, wide;

  Subject(const ModelConfig& of, Index number, const Options& o)
      : config(of),
        spec(config.layer(number)),
        store((parameter_specs(config, {0, 1}))),
        layer(spec.mixer, spec.mixer_norm, spec.mixer_output_norm, store),
        positions(at(o.tokens)),
        hidden(o.tokens, config.hidden_size),
        d_hidden(o.tokens, config.hidden_size) {
    initialise(store, config, 1);
    std::iota(positions.begin(), positions.end(), 0);
    for (const RopeSettings& rope : config.ropes()) ropes.push_back(make_rope_table(o.tokens, rope));
    const std::string prefix = std::visit([](const auto& mixer) { return mixer.prefix; }, spec.mixer);
    Index widest = 0;
    for (const Parameter& p : store.parameters())
      if (p.spec.name.starts_with(prefix) && p.spec.name.ends_with("proj.weight")) {
        products.push_back(Linear::of(store, p.spec.name));
        widest = std::max({widest, products.back().in(), products.back().out()});
      }
    wide = Matrix(2 * o.tokens, widest);
    for (Index i = 0; i < hidden.view().size(); ++i)
      hidden.view().data[i] = d_hidden.view().data[i] = static_cast<float>(i % 61) / 61.0f - 0.5f;
  }

  double layer_seconds(const Options& o) {
    const MixerContext context{1, o.tokens, positions, ropes};
    return seconds_of([&] {
      Matrix x = Matrix::copy_of(hidden), dx = Matrix::copy_of(d_hidden);
      layer.forward(kernels, context, x);
      layer.backward(kernels, context, dx, workspace);
    });
  }
  double product_seconds(const Options& o) {
    return seconds_of([&] {
      for (const Linear& product : products) {
        const MatrixView x(wide.row(0), o.tokens, product.in()),
            y(wide.row(o.tokens), o.tokens, product.out());
        product.forward(kernels.dense, x, y);
        product.backward(kernels.dense, y, x, x);
      }
    });
  }
};

/// Of a file: a layer of each mixer that is not like one before, and a few rows for its other weights.
void add_layers(const std::string& file, std::vector<std::string>& names,
                std::vector<std::pair<ModelConfig, Index>>& layers) {
  ModelConfig config = ModelConfig::from(Document::read(file));
  config.vocab_size = config.intermediate_size = config.moe_intermediate_size = 8;
  config.num_experts = std::min<Index>(config.num_experts, 1);
  config.num_experts_per_tok = 1;
  std::set<std::string> seen;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string kind = !config.is_attention(layer) ? "gated delta net"
                             : config.window(layer) > 0  ? "window"
                                                         : "attention";
    if (!seen.insert(kind).second) continue;
    names.push_back(config.model_type + " " + kind);
    layers.emplace_back(config, layer);
  }
}

void run(const Options& o) {
  set_threads(o.threads);
  std::vector<std::string> names;
  std::vector<std::pair<ModelConfig, Index>> layers;
  for (const std::string& file : o.configs) add_layers(file, names, layers);
  if (o.configs.empty())
    for (const char* kind : {"attention", "short convolution", "gated delta net"}) {
      names.emplace_back(kind);
      layers.emplace_back(model_of(kind, o), 0);
    }
  std::deque<Subject> subjects;
  for (const auto& [config, layer] : layers) subjects.emplace_back(config, layer, o);
  const auto samples = take_turns(2 * subjects.size(), o.samples, [&](std::size_t which) {
    Subject& subject = subjects[which / 2];
    return which % 2 == 0 ? subject.layer_seconds(o) : subject.product_seconds(o);
  });
  std::printf("%s\n%-32s %10s %10s %22s\n", bench::environment_line(o.threads).c_str(), "mixer", "layer_ms",
              "tok/s", "of_layer");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Spread share = spread_of(ratios(samples[2 * i + 1], samples[2 * i]));
    const double seconds = median(samples[2 * i]);
    std::printf("%-32s %10.1f %10.0f %8.3f (%.3f..%.3f)\n", names[i].c_str(), 1e3 * seconds,
                static_cast<double>(o.tokens) / seconds, share.median, share.p10, share.p90);
    rows.push_back({{"mixer", names[i]},
                    {"of_layer", share.median},
                    {"layer_ms", 1e3 * seconds},
                    {"commit", bench::commit_text()}});
  }
  bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) {
  return moeloom::bench::run_main("mixer_bench", argc, argv, parse, run);
}
