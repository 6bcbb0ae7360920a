// What share of a layer's time do the router and its plan take, and how do they compare with torch.topk?
//
//   build/bench/router_bench --threads 2 --rival "/usr/bin/python3 bench/moe/torch_router.py"
//   build/bench/router_bench --threads 2 --experts 512 --top-k 10 --hidden 1024 --inter 512
//
// All parts take their turn in every round, and so does the rival, which answers over a pipe: it routes the
// same numbers of tokens, experts and choices. The layer's time is what its 18 K T D F FLOPs take at the peak
// measured in the same round, so that a share is at most too large; --layer on times the layer itself,
// forward and backward, in memory for all its experts. The product that makes logits is told apart: it is 6 T
// D E FLOPs forward and backward, E / (3 K F) of the layer's, whoever computes them.
#include "measure/layer_subject.hpp"
#include "moe/dispatch/dispatch_plan.hpp"
#include "moe/routing/router.hpp"
#include "moe/routing/router_statistics.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <time.h>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"
#include "support/rival.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 4096, experts = 128, top_k = 8, hidden = 2048, inter = 768;
  std::string score = "softmax", layer = "off", clock = "wall", rival;
  int threads = 1, samples = 21;
  std::string json;
  clockid_t clock_id() const { return clock == "cpu" ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }
  bool with_layer() const { return bench::is_on("--layer", layer); }
  double layer_flops() const {
    return 18.0 * static_cast<double>(top_k * tokens) * static_cast<double>(hidden * inter);
  }
  RouterSettings router() const {
    RouterSettings settings = softmax_router(experts, top_k);
    if (score == "sigmoid") settings.score = RouterScore::kSigmoid;
    return settings;
  }
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("router_bench: the router and its plan beside a layer and torch.topk");
  bench::add_sizes(known, {{"tokens", &o.tokens, "tokens of a rank"},
                           {"experts", &o.experts, "experts in all"},
                           {"top-k", &o.top_k, "experts a token"},
                           {"hidden", &o.hidden, "hidden size"},
                           {"inter", &o.inter, "intermediate size of an expert"}});
  known.add_options()("score", po::value(&o.score)->default_value(o.score), "softmax, sigmoid")(
      "layer", po::value(&o.layer)->default_value(o.layer), "on, off: time the layer itself, too")(
      "clock", po::value(&o.clock)->default_value(o.clock), "wall, or cpu with one thread")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "rival", po::value(&o.rival), "a command that answers as bench/moe/torch_router.py does");
  bench::add_row_options(known, o.samples, "measured rounds", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  o.with_layer();
  if (o.score != "softmax" && o.score != "sigmoid")
    throw std::invalid_argument("unknown --score " + o.score + "; known: softmax, sigmoid");
  if (o.clock != "wall" && (o.clock != "cpu" || o.threads != 1))
    throw std::invalid_argument("--clock is wall, or cpu with --threads 1");
  if (o.top_k < 1 || o.top_k > o.experts || o.samples < 1 || o.threads < 1)
    throw std::invalid_argument("top-k must be between 1 and --experts, --samples and --threads at least 1");
  return o;
}

Matrix normal(Index rows, Index cols, const char* stream, float scale) {
  Matrix numbers(rows, cols);
  const CounterRandom random(1, stream_of(stream));
  for (Index i = 0; i < rows * cols; ++i)
    numbers.view().data[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return numbers;
}

/// What a layer has of a router, with everything filled once.
class Router {
 public:
  explicit Router(const Options& o)
      : settings_(o.router()),
        x_(normal(o.tokens, o.hidden, "tokens", 1)),
        weight_(normal(o.experts, o.hidden, "router", 1 / std::sqrt(static_cast<float>(o.hidden)))),
        d_weight_(o.experts, o.hidden),
        d_x_(o.tokens, o.hidden),
        logits_(o.tokens, o.experts),
        d_logits_(o.tokens, o.experts),
        d_topk_weights_(at(o.tokens * o.top_k), 0.5f),
        losses_{.d_probability = std::vector<float>(at(o.experts), 0.01f)},
        statistics_(1, o.experts) {
    multiply();
    route_tokens();
    plan();
  }

  void multiply() { matmul(x_, weight_, logits_); }
  void multiply_backward() {
    matmul_input_grad(d_logits_, weight_, d_x_, Write::kReplace);
    matmul_weight_grad(d_logits_, x_, d_weight_);
  }
  void route_tokens() { route(logits_, settings_, routing_); }
  void count() { statistics_.add(0, routing_, {}); }
  void plan() {
    plan_sending(routing_.sent_idx(), settings_.top_k, settings_.num_experts, 1, plan_);
    plan_receiving(plan_.tokens_per_expert, plan_);
  }
  void backward() { route_backward(routing_, settings_, d_topk_weights_, losses_, {}, d_logits_); }

 private:
  RouterSettings settings_;
  Matrix x_, weight_, d_weight_, d_x_, logits_, d_logits_;
  std::vector<float> d_topk_weights_;
  RouterLossGradient losses_;
  RouterStatistics statistics_;
  Routing routing_;
  DispatchPlan plan_;
};

/// Seconds of a call by a clock, the mean over `repeats`.
double seconds_by(clockid_t clock, const std::function<void()>& work, int repeats = 1) {
  const auto now = [clock] {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  for (int i = 0; i < repeats; ++i) work();
  return (now() - begin) / repeats;
}

struct Part {
  std::string name;
  bool is_ours = true;              // of the sum that is held against the layer
  std::function<double()> seconds;  // of one call
};

std::vector<Part> parts_of(Router& router, clockid_t clock) {
  const auto timed = [clock](const char* name, bool is_ours, std::function<void()> work) -> Part {
    const int repeats = repeats_for(work);
    return {name, is_ours, [=] { return seconds_by(clock, work, repeats); }};
  };
  return {timed("route", true, [&] { router.route_tokens(); }),
          timed("statistics", true, [&] { router.count(); }),
          timed("plan", true, [&] { router.plan(); }),
          timed("route backward", true, [&] { router.backward(); }),
          timed("logits", false, [&] { router.multiply(); }),
          timed("logits backward", false, [&] { router.multiply_backward(); })};
}

/// The layer on one rank.
struct Layer {
  explicit Layer(const Options& o)
      : mesh(Mesh::single()),
        sizes{o.hidden, o.inter, o.experts, o.top_k},
        inputs(sizes, Workload::kRandom, o.tokens, mesh.world(), 0),
        subject(sizes, mesh, bench::layer_kernels("gmm", DType::kF32), {}, 0) {
    inputs.prepare(0);
  }
  void step() { subject.step(inputs); }
  Mesh mesh;
  LayerSizes sizes;
  LayerInputs inputs;
  LayerSubject subject;
};

/// What the layer's products take at the peak; by processor time, with what the peak itself was given of it.
double seconds_at_peak(const Options& o) {
  double gflops = 0;
  const auto measure = [&] { gflops = fma_peak_gflops(o.threads, 0.02); };
  double given = 1;
  const double wall = seconds_by(CLOCK_MONOTONIC, [&] { given = seconds_by(o.clock_id(), measure); });
  return o.layer_flops() / (1e9 * gflops) * (given / wall);
}

struct Measured {
  std::map<std::string, Samples> seconds;
  Samples ours;   // the sum of what is held against the layer
  Samples layer;  // at the peak, or itself
};

Measured measure(const Options& o, std::vector<Part> parts, Layer* layer) {
  Measured measured;
  for (int round = 0; round < o.samples; ++round) {
    double ours = 0;
    for (const Part& part : parts) {
      const double seconds = part.seconds();
      measured.seconds[part.name].push_back(seconds);
      if (part.is_ours) ours += seconds;
    }
    measured.ours.push_back(ours);
    measured.layer.push_back(layer == nullptr ? seconds_at_peak(o)
                                              : seconds_by(o.clock_id(), [&] { layer->step(); }));
  }
  return measured;
}

nlohmann::ordered_json row_of(const Options& o, const std::string& name, const Samples& seconds,
                              const Samples& layer) {
  const Spread time = spread_of(seconds);
  const Spread share = spread_of(ratios(seconds, layer));
  std::printf("%-18s %9.1f (%8.1f..%8.1f) us %8.3f %% (%.3f..%.3f)\n", name.c_str(), 1e6 * time.median,
              1e6 * time.p10, 1e6 * time.p90, 100 * share.median, 100 * share.p10, 100 * share.p90);
  return {{"part", name},
          {"tokens", o.tokens},
          {"experts", o.experts},
          {"top_k", o.top_k},
          {"score", o.score},
          {"threads", o.threads},
          {"clock", o.clock},
          {"us", 1e6 * time.median},
          {"us_p10", 1e6 * time.p10},
          {"us_p90", 1e6 * time.p90},
          {"share_of_layer", share.median},
          {"layer", o.with_layer() ? "measured" : "at the peak"},
          {"commit", bench::commit_text()}};
}

void print_leads(const Measured& measured) {
  for (const auto& [ours, rival] :
       {std::pair("route", "torch route"), {"route", "torch topk"}, {"plan", "torch plan"}}) {
    if (!measured.seconds.contains(rival)) continue;
    const Spread lead = spread_of(ratios(measured.seconds.at(rival), measured.seconds.at(ours)));
    std::printf("%s / %s: %.2f (%.2f..%.2f)\n", rival, ours, lead.median, lead.p10, lead.p90);
  }
}

void run(const Options& o) {
  set_threads(o.threads);
  std::printf("%s\nT %lld, E %lld, K %lld, D %lld, F %lld, %s, clock %s; shares of a layer %s\n",
              bench::environment_line(o.threads).c_str(), static_cast<long long>(o.tokens),
              static_cast<long long>(o.experts), static_cast<long long>(o.top_k),
              static_cast<long long>(o.hidden), static_cast<long long>(o.inter), o.score.c_str(),
              o.clock.c_str(), o.with_layer() ? "that is measured" : "at the peak of multiply-adds");
  Router router(o);
  std::vector<Part> parts = parts_of(router, o.clock_id());
  std::optional<bench::Rival> rival;
  if (!o.rival.empty()) {
    rival.emplace(o.rival + " --tokens " + std::to_string(o.tokens) + " --experts " +
                  std::to_string(o.experts) + " --top-k " + std::to_string(o.top_k) + " --score " + o.score +
                  " --clock " + o.clock + " --threads " + std::to_string(o.threads));
    for (const char* name : {"topk", "route", "plan"})
      parts.push_back({std::string("torch ") + name, false, [&rival, name] { return rival->ask(name); }});
  }
  std::unique_ptr<Layer> layer;
  if (o.with_layer()) layer = std::make_unique<Layer>(o);
  const Measured measured = measure(o, parts, layer.get());
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Part& part : parts)
    rows.push_back(row_of(o, part.name, measured.seconds.at(part.name), measured.layer));
  rows.push_back(row_of(o, "layer", measured.layer, measured.layer));
  rows.push_back(row_of(o, "router and plan", measured.ours, measured.layer));  // last: bench/beside.py's
  print_leads(measured);
  bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("router_bench", argc, argv, parse, run);
}
