// How long does one MoE layer take, forward and backward, and how near does it come to the peak?
//
//   mpirun -n 2 build/bench/layer_bench --ep 2 --tokens 1024 --hidden 1024 --inter 768 --experts 32 --top-k 4
//
// --tokens is per rank (weak scaling). Every path at every ep takes its turn in one run, the peak is measured
// around each, and the slowest rank's time counts. 18 K T D F FLOPs a rank, the router left out. Weights are
// new in every step: `gmm` reads the masters, `gmm-packed` packs both faces once a step, `gmm-copy`
// transposes and copies them in every call, as upstream's grouped matmul does. With --dtype bf16 the peak of
// gmm and gmm-packed is that of bf16 dot products. `of_first` is a subject's time over that of the first in
// the same round:
//
//   mpirun -n 2 build/bench/layer_bench --ep 2 --top-k 2 --dispatcher shared --paths gmm
//     --routing balanced,hot --rebalance off,on
//
// --overlap off,4 asks how much of the rows' travel the products hide: (off - on) / min(exchange, experts) of
// the same round, where exchange and experts are those of the round without overlap.
//
// --rebalance off,on gives experts replicas on other ranks where --net-bytes-per-second and the built-in rate
// of products say that it pays; what was decided is printed behind the table. With --dispatcher shared or
// hierarchical ranks read each other's weights in the node's memory.
//
// Each subject is checked against ep = 1 before it is timed, in memory for all experts; --check off leaves it
// out.
#include "measure/layer_subject.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"

#include <cmath>
#include <cstdio>
#include <deque>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "support/check.hpp"
#include "support/dispatcher.hpp"
#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"
#include "support/replica_rates.hpp"

namespace {

using namespace moeloom;

constexpr std::uint64_t kSeed = 0;

struct Options {
  Index tokens = 1024, hidden = 1024, inter = 768, experts = 32, top_k = 4;
  std::string ep = "1", paths = "gmm,loop", dispatcher = "alltoall", overlap = "off";
  std::string routing = "random", rebalance = "off", check = "on";
  double net_bytes_per_second = 0;  // 0: the built-in rate
  int threads = 1, warmup = 2, samples = 9;
  std::string dtype = "fp32", json;
  LayerSizes sizes() const { return {hidden, inter, experts, top_k}; }
};

/// 0: off.
Index chunks_of(const std::string& word) {
  if (word == "off") return 0;
  const Index chunks = std::atoll(word.c_str());
  if (chunks < 1)
    throw std::invalid_argument("unknown --overlap " + word + "; known: off, or a number from 1");
  return chunks;
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("layer_bench: one MoE layer, forward and backward, beside the FMA peak");
  known.add_options()("tokens", po::value(&o.tokens)->default_value(o.tokens), "tokens of a rank")(
      "hidden", po::value(&o.hidden)->default_value(o.hidden), "hidden size")(
      "inter", po::value(&o.inter)->default_value(o.inter), "intermediate size of an expert")(
      "experts", po::value(&o.experts)->default_value(o.experts), "experts in all")(
      "top-k", po::value(&o.top_k)->default_value(o.top_k), "experts a token")(
      "ep", po::value(&o.ep)->default_value(o.ep), "ranks that share the experts, a list: 1,2")(
      "paths", po::value(&o.paths)->default_value(o.paths), "of gmm, loop, gmm-packed, gmm-copy")(
      "dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher),
      "of alltoall, shared, hierarchical")(
      "routing", po::value(&o.routing)->default_value(o.routing),
      "a list of balanced, random, zipf, hot, hot-rank, trace:FILE@LAYER, ... (moeloom bench ep --help)")(
      "overlap", po::value(&o.overlap)->default_value(o.overlap),
      "off, or chunks of experts that compute while rows travel, a list: off,2,4")(
      "rebalance", po::value(&o.rebalance)->default_value(o.rebalance),
      "a list of off, on: experts get replicas on other ranks where that pays")(
      "net-bytes-per-second", po::value(&o.net_bytes_per_second)->default_value(o.net_bytes_per_second),
      "of a host's link, for --rebalance; 0: the built-in rate")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of gmm and gmm-packed: fp32, bf16")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "check", po::value(&o.check)->default_value(o.check),
      "on, off: compare each subject with ep = 1 first")("json", po::value(&o.json),
                                                         "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  bench::dtype_from_option(o.dtype);
  bench::dispatcher_named(o.dispatcher);
  for (const std::string& name : bench::words(o.routing))
    if (const auto reason = why_not(workload_named(name), {o.tokens, o.experts, o.top_k}))
      throw std::invalid_argument(*reason);
  for (const std::string& word : bench::words(o.rebalance)) bench::is_on("--rebalance", word);
  for (const std::string& overlap : bench::words(o.overlap)) chunks_of(overlap);
  bench::is_on("--check", o.check);
  return o;
}

/// What is measured beside the others, on one mesh.
struct Variant {
  std::string path, routing, overlap;
  bool rebalance = false;
  bool differs_in_overlap_alone(const Variant& other) const {
    return path == other.path && routing == other.routing && rebalance == other.rebalance;
  }
};

RebalanceRates rates_of(const Options& o, const Mesh& mesh, DispatcherKind dispatcher) {
  ModelConfig config;
  config.hidden_size = o.hidden;
  config.moe_intermediate_size = o.inter;
  config.num_experts = o.experts;
  config.num_experts_per_tok = o.top_k;
  return bench::replica_rates(config, mesh, dispatcher,
                              {.sequences = mesh.shape().world(), .length = o.tokens}, o.threads,
                              o.net_bytes_per_second);
}

DispatcherSettings dispatcher_of(const Options& o, const Mesh& mesh, const Variant& variant) {
  DispatcherSettings settings = bench::dispatcher_settings(o.dispatcher, mesh.ep(), o.experts);
  settings.chunks = chunks_of(variant.overlap);
  if (variant.rebalance) settings.rebalance = rates_of(o, mesh, settings.kind);
  return settings;
}

struct Subject {
  Subject(const Options& o, const Mesh& mesh, const Variant& variant_, LayerInputs& inputs_)
      : variant(variant_),
        inputs(inputs_),
        layer(o.sizes(), mesh, bench::layer_kernels(variant.path, bench::dtype_from_option(o.dtype)),
              dispatcher_of(o, mesh, variant), kSeed) {}
  Variant variant;
  LayerInputs& inputs;
  LayerSubject layer;
};

/// The slowest rank's, of one pass.
struct Pass {
  double seconds = 0;
  double exchange = 0, experts = 0;  // of those, in dispatch and combine, and in the products
};
struct Step {
  Pass forward, backward;
  double seconds() const { return forward.seconds + backward.seconds; }
};

Pass slowest(const PhaseTimes& seconds, const Communicator& world) {
  const auto of = [&](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; };
  return {world.all_max(std::reduce(seconds.begin(), seconds.end())),
          world.all_max(of(Phase::kDispatch) + of(Phase::kCombine)), world.all_max(of(Phase::kExperts))};
}

Step step_of(Subject& subject) {
  subject.layer.step(subject.inputs);
  const Communicator& world = subject.layer.mesh().world();
  return {slowest(subject.layer.forward_seconds(), world), slowest(subject.layer.backward_seconds(), world)};
}

struct Measured {
  Samples forward_ms, backward_ms, total_ms, gflops, peak, fraction;
  Samples of_first;  // total_ms over the first subject's in the same round
  Samples exchange_ms, experts_ms;
  Samples hidden, hidden_forward, hidden_backward;  // empty: there is nothing to compare with
  std::vector<Step> steps;
};

double hidden_share(const Pass& off, double on_seconds) {
  return (off.seconds - on_seconds) / std::min(off.exchange, off.experts);
}

/// Compares, round by round, with the same layer without overlap.
void compare(const Measured& off, Measured& on) {
  for (std::size_t i = 0; i < on.steps.size(); ++i) {
    const auto& [forward, backward] = off.steps[i];
    const Pass both{forward.seconds + backward.seconds, forward.exchange + backward.exchange,
                    forward.experts + backward.experts};
    on.hidden_forward.push_back(hidden_share(forward, on.steps[i].forward.seconds));
    on.hidden_backward.push_back(hidden_share(backward, on.steps[i].backward.seconds));
    on.hidden.push_back(hidden_share(both, on.steps[i].seconds()));
  }
}

nlohmann::ordered_json row_of(const Options& o, const Subject& subject, const Measured& s) {
  const auto f = spread_of(s.fraction);
  const auto ratio = spread_of(s.of_first);
  return {{"path", subject.variant.path},
          {"routing", subject.variant.routing},
          {"rebalance", subject.variant.rebalance},
          {"ranks", subject.layer.mesh().world().size()},
          {"ep", subject.layer.mesh().shape().ep},
          {"threads", o.threads},
          {"tokens", o.tokens},
          {"hidden", o.hidden},
          {"inter", o.inter},
          {"experts", o.experts},
          {"top_k", o.top_k},
          {"dispatcher", o.dispatcher},
          {"overlap", subject.variant.overlap},
          {"dtype", subject.layer.dtype() == DType::kBF16 ? "bf16" : "fp32"},
          {"forward_ms", median(s.forward_ms)},
          {"backward_ms", median(s.backward_ms)},
          {"total_ms", median(s.total_ms)},
          {"exchange_ms", median(s.exchange_ms)},
          {"experts_ms", median(s.experts_ms)},
          {"hidden_share", s.hidden.empty() ? 0 : median(s.hidden)},
          {"hidden_share_forward", s.hidden.empty() ? 0 : median(s.hidden_forward)},
          {"hidden_share_backward", s.hidden.empty() ? 0 : median(s.hidden_backward)},
          {"gflops_per_rank", median(s.gflops)},
          {"peak_gflops", median(s.peak)},
          {"fraction", f.median},
          {"fraction_p10", f.p10},
          {"fraction_p90", f.p90},
          {"of_first", ratio.median},
          {"of_first_p10", ratio.p10},
          {"of_first_p90", ratio.p90},
          {"commit", bench::commit_text()}};
}

void measure(const Options& o, Subject& subject, Measured& measured) {
  const Communicator& world = subject.layer.mesh().world();
  // The slowest rank waits for nobody's peak: each measures its own while all are busy.
  const auto peak_of = [&](double seconds) { return peak_gflops(subject.layer.dtype(), o.threads, seconds); };
  Step step;
  const BesidePeak sample = beside_peak(peak_of, measured.steps.back().seconds(), [&] {
    step = step_of(subject);
    return step.seconds();
  });
  double peak = 0;
  for (const double each : world.all_gather(std::vector<double>{sample.gflops})) peak += each / world.size();
  const double gflops = 18e-9 * static_cast<double>(o.top_k * o.tokens * o.hidden * o.inter) / sample.seconds;
  measured.steps.push_back(step);
  measured.forward_ms.push_back(1e3 * step.forward.seconds);
  measured.backward_ms.push_back(1e3 * step.backward.seconds);
  measured.exchange_ms.push_back(1e3 * (step.forward.exchange + step.backward.exchange));
  measured.experts_ms.push_back(1e3 * (step.forward.experts + step.backward.experts));
  measured.total_ms.push_back(1e3 * sample.seconds);
  measured.gflops.push_back(gflops);
  measured.peak.push_back(peak);
  measured.fraction.push_back(gflops / peak);
}

std::vector<std::unique_ptr<Mesh>> meshes_of(const Options& o) {
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (const std::string& ep : bench::words(o.ep)) {
    Communicator world = Communicator::world();
    MeshShape shape;
    shape.ep = std::stoll(ep);
    shape.dp = shape.ep > 0 ? world.size() / shape.ep : 0;
    const auto violations = mesh_violations(shape, world.size(), o.experts);
    if (!violations.empty()) throw ConfigError(violations);
    meshes.push_back(std::make_unique<Mesh>(std::move(world), shape));
  }
  return meshes;
}

std::vector<Variant> variants_of(const Options& o) {
  std::vector<Variant> variants;
  for (const std::string& path : bench::words(o.paths))
    for (const std::string& routing : bench::words(o.routing))
      for (const std::string& rebalance : bench::words(o.rebalance))
        for (const std::string& overlap : bench::words(o.overlap))
          variants.push_back({path, routing, overlap, bench::is_on("--rebalance", rebalance)});
  return variants;
}

/// Each with the one before it that differs in nothing but its overlap, which is off.
void compare_overlap(const std::deque<Subject>& subjects, std::vector<Measured>& samples) {
  const Measured* off = nullptr;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const bool follows = i > 0 && &subjects[i].layer.mesh() == &subjects[i - 1].layer.mesh() &&
                         subjects[i].variant.differs_in_overlap_alone(subjects[i - 1].variant);
    if (!follows) off = nullptr;
    if (subjects[i].variant.overlap == "off")
      off = &samples[i];
    else if (off != nullptr)
      compare(*off, samples[i]);
  }
}

/// "61 %", or nothing.
std::string percent(const std::vector<double>& shares) {
  return shares.empty() ? "" : std::to_string(std::lround(100 * median(shares))) + " %";
}

void print(const std::deque<Subject>& subjects, const std::vector<Measured>& samples, const Options& o) {
  std::printf("%s, %d ranks\n", bench::environment_line(o.threads).c_str(),
              subjects.front().layer.mesh().world().size());
  std::printf("%-9s %3s %-12s %9s %7s %11s %11s %11s %11s %11s %7s %8s %8s %15s %11s %9s %9s\n", "path", "ep",
              "routing", "rebalance", "overlap", "forward_ms", "backward_ms", "total_ms", "exchange_ms",
              "experts_ms", "hidden", "forward", "backward", "gflops_per_rank", "peak_gflops", "fraction",
              "of_first");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Measured& s = samples[i];
    rows.push_back(row_of(o, subjects[i], s));
    const Variant& variant = subjects[i].variant;
    std::printf(
        "%-9s %3d %-12s %9s %7s %11.2f %11.2f %11.2f %11.2f %11.2f %7s %8s %8s %15.1f %11.1f %9.3f "
        "%9.3f\n",
        variant.path.c_str(), static_cast<int>(subjects[i].layer.mesh().shape().ep), variant.routing.c_str(),
        variant.rebalance ? "on" : "off", variant.overlap.c_str(), median(s.forward_ms),
        median(s.backward_ms), median(s.total_ms), median(s.exchange_ms), median(s.experts_ms),
        percent(s.hidden).c_str(), percent(s.hidden_forward).c_str(), percent(s.hidden_backward).c_str(),
        median(s.gflops), median(s.peak), median(s.fraction), median(s.of_first));
  }
  bench::write_json(o.json, rows);
}

/// What each subject that rebalances did in all of its steps, of all ranks. Collective.
void print_rebalancing(std::deque<Subject>& subjects) {
  for (Subject& subject : subjects) {
    if (!subject.variant.rebalance) continue;
    const Communicator& world = subject.layer.mesh().world();
    const RebalanceCounts all = total(sum_over(world, {subject.layer.rebalance_counts()}));
    if (world.rank() != 0) continue;
    std::printf("%s, %s, rebalance:", subject.variant.path.c_str(), subject.variant.routing.c_str());
    for (std::size_t i = 0; i < all.verdicts.size(); ++i)
      std::printf(" %s %lld", std::string(name_of(static_cast<RebalanceVerdict>(i))).c_str(),
                  static_cast<long long>(all.verdicts[i]));
    const double steps = std::reduce(all.verdicts.begin(), all.verdicts.end(), 0.0);
    std::printf(
        "; a step: %.2f replicas, %.0f rows moved, %.2f MB weights, %.2f MB gradients; fullest rank over "
        "mean %.3f -> %.3f; %.3f ms over even rows, %.3f of them saved\n",
        static_cast<double>(all.replicas) / steps, static_cast<double>(all.rows_moved) / steps,
        1e-6 * static_cast<double>(all.weight_bytes) / steps,
        1e-6 * static_cast<double>(all.gradient_bytes) / steps, all.load_before(), all.load_after(),
        1e-6 * static_cast<double>(all.uneven_nanoseconds) / world.size() / steps,
        1e-6 * static_cast<double>(all.saved_nanoseconds) / world.size() / steps);
  }
}

void check(const Options& o, const Mesh& without_ep, std::deque<Subject>& subjects) {
  std::map<LayerInputs*, LayerCheck> checks;
  for (Subject& subject : subjects) {
    auto found = checks.find(&subject.inputs);
    if (found == checks.end())
      found = checks.emplace(&subject.inputs, LayerCheck(o.sizes(), without_ep, subject.inputs, kSeed)).first;
    bench::refuse_unless_right(subject.variant.path + ", " + subject.variant.routing,
                               found->second.error_of(subject.layer, subject.inputs),
                               LayerCheck::tolerance(subject.layer.dtype()));
  }
}

void run(const Options& o) {
  const bool bf16 = bench::dtype_from_option(o.dtype) == DType::kBF16;
  if (bf16 && Communicator::world().all_max(cpu_has_bf16() ? 0 : 1) > 0) {
    if (Communicator::world().rank() == 0) bench::report_no_bf16(o.json);
    return;
  }
  set_threads(o.threads);
  const auto meshes = meshes_of(o);
  const Communicator& world = meshes.front()->world();
  std::map<std::string, LayerInputs> inputs;
  for (const std::string& name : bench::words(o.routing))
    inputs.try_emplace(name, o.sizes(), workload_named(name), o.tokens * world.size(), world, kSeed);
  std::deque<Subject> subjects;
  for (const auto& mesh : meshes)
    for (const Variant& variant : variants_of(o))
      subjects.emplace_back(o, *mesh, variant, inputs.at(variant.routing));
  if (bench::is_on("--check", o.check)) check(o, Mesh(Communicator::world(), MeshShape{0, 1}), subjects);
  std::vector<Measured> samples(subjects.size());
  const auto prepare = [&](Index step) {
    for (auto& [name, each] : inputs) each.prepare(step);
  };
  for (int i = 0; i < o.warmup; ++i) {
    prepare(i);
    for (std::size_t s = 0; s < subjects.size(); ++s) samples[s].steps = {step_of(subjects[s])};
  }
  for (int i = 0; i < o.samples; ++i) {
    prepare(o.warmup + i);
    for (std::size_t s = 0; s < subjects.size(); ++s) measure(o, subjects[s], samples[s]);
  }
  for (Measured& each : samples) {
    each.steps.erase(each.steps.begin());  // of the warm-up
    each.of_first = ratios(each.total_ms, samples.front().total_ms);
  }
  compare_overlap(subjects, samples);
  if (world.rank() == 0) print(subjects, samples, o);
  print_rebalancing(subjects);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o);
} catch (const std::exception& error) {
  std::cerr << "layer_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
