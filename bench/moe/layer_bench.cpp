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
//     --routing balanced,hot --node-pool off,on
//
// --overlap off,4 asks how much of the rows' travel the products hide: (off - on) / min(exchange, experts) of
// the same round, where exchange and experts are those of the round without overlap.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"

#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>

#include "moe/layer_subject.hpp"
#include "support/json_file.hpp"
#include "moeloom/measure/paired.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

using Options = bench::LayerOptions;
using Subject = bench::LayerSubject;
using bench::Variant;

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
      "dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher), "of alltoall, shared")(
      "routing", po::value(&o.routing)->default_value(o.routing), "a list of random, balanced, hot")(
      "node-pool", po::value(&o.node_pool)->default_value(o.node_pool),
      "a list of off, on: ranks of a node run each other's experts")(
      "overlap", po::value(&o.overlap)->default_value(o.overlap),
      "off, or chunks of experts that compute while rows of alltoall travel, a list: off,2,4")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of gmm and gmm-packed: fp32, bf16")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "json", po::value(&o.json), "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  bench::dtype_from_option(o.dtype);
  bench::dispatcher_named(o.dispatcher);
  for (const std::string& name : bench::words(o.routing)) bench::routing_named(name);
  for (const std::string& word : bench::words(o.node_pool)) bench::is_on("--node-pool", word);
  for (const std::string& overlap : bench::words(o.overlap)) bench::chunks_of(overlap);
  return o;
}

struct Samples {
  std::vector<double> forward_ms, backward_ms, total_ms, gflops, peak, fraction;
  std::vector<double> of_first;  // total_ms over the first subject's in the same round
  std::vector<double> exchange_ms, experts_ms;
  std::vector<double> hidden, hidden_forward, hidden_backward;  // empty: there is nothing to compare with
  std::vector<Subject::Step> steps;
};

double hidden_share(const Subject::Pass& off, double on_seconds) {
  return (off.seconds - on_seconds) / std::min(off.exchange, off.experts);
}

/// Compares, round by round, with the same layer without overlap.
void compare(const Samples& off, Samples& on) {
  for (std::size_t i = 0; i < on.steps.size(); ++i) {
    const auto& [forward, backward] = off.steps[i];
    const Subject::Pass both{forward.seconds + backward.seconds, forward.exchange + backward.exchange,
                             forward.experts + backward.experts};
    on.hidden_forward.push_back(hidden_share(forward, on.steps[i].forward.seconds));
    on.hidden_backward.push_back(hidden_share(backward, on.steps[i].backward.seconds));
    on.hidden.push_back(hidden_share(both, on.steps[i].seconds()));
  }
}

double median(const std::vector<double>& values) {
  return bench::percentiles(values).median;
}

nlohmann::ordered_json row_of(const Options& o, const Subject& subject, const Samples& s) {
  const auto f = bench::percentiles(s.fraction);
  const auto ratio = bench::percentiles(s.of_first);
  return {{"path", subject.variant.path},
          {"routing", subject.variant.routing},
          {"node_pool", subject.variant.node_pool},
          {"ranks", subject.mesh().world().size()},
          {"ep", subject.mesh().shape().ep},
          {"threads", o.threads},
          {"tokens", o.tokens},
          {"hidden", o.hidden},
          {"inter", o.inter},
          {"experts", o.experts},
          {"top_k", o.top_k},
          {"dispatcher", o.dispatcher},
          {"overlap", subject.variant.overlap},
          {"dtype", subject.dtype() == DType::kBF16 ? "bf16" : "fp32"},
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

void measure(const Options& o, Subject& subject, Samples& samples) {
  const Communicator& world = subject.mesh().world();
  // The slowest rank waits for nobody's peak: each measures its own while all are busy.
  const double half_step = subject.last_seconds() / 2;
  const double before = bench::peak_gflops(subject.dtype(), o.threads, half_step);
  const Subject::Step step = subject.step();
  const double after = bench::peak_gflops(subject.dtype(), o.threads, half_step);
  std::vector<double> peaks = world.all_gather(std::vector<double>{(before + after) / 2});
  double peak = 0;
  for (const double each : peaks) peak += each / world.size();
  const double total = step.seconds();
  const double gflops = 18e-9 * static_cast<double>(o.top_k * o.tokens * o.hidden * o.inter) / total;
  samples.steps.push_back(step);
  samples.forward_ms.push_back(1e3 * step.forward.seconds);
  samples.backward_ms.push_back(1e3 * step.backward.seconds);
  samples.exchange_ms.push_back(1e3 * (step.forward.exchange + step.backward.exchange));
  samples.experts_ms.push_back(1e3 * (step.forward.experts + step.backward.experts));
  samples.total_ms.push_back(1e3 * total);
  samples.gflops.push_back(gflops);
  samples.peak.push_back(peak);
  samples.fraction.push_back(gflops / peak);
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
      for (const std::string& pool : bench::words(o.node_pool))
        for (const std::string& overlap : bench::words(o.overlap))
          variants.push_back({path, routing, overlap, bench::is_on("--node-pool", pool)});
  return variants;
}

/// Each with the one before it that differs in nothing but its overlap, which is off.
void compare_overlap(const std::vector<std::unique_ptr<Subject>>& subjects, std::vector<Samples>& samples) {
  const Samples* off = nullptr;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const bool follows = i > 0 && &subjects[i]->mesh() == &subjects[i - 1]->mesh() &&
                         subjects[i]->variant.differs_in_overlap_alone(subjects[i - 1]->variant);
    if (!follows) off = nullptr;
    if (subjects[i]->variant.overlap == "off")
      off = &samples[i];
    else if (off != nullptr)
      compare(*off, samples[i]);
  }
}

/// "61 %", or nothing.
std::string percent(const std::vector<double>& shares) {
  return shares.empty() ? "" : std::to_string(std::lround(100 * median(shares))) + " %";
}

void print(const std::vector<std::unique_ptr<Subject>>& subjects, const std::vector<Samples>& samples,
           const Options& o) {
  std::printf("%s, %d ranks\n", bench::environment_line(o.threads).c_str(),
              subjects.front()->mesh().world().size());
  std::printf("%-9s %3s %-9s %4s %7s %11s %11s %11s %11s %11s %7s %8s %8s %15s %11s %9s %9s\n", "path", "ep",
              "routing", "pool", "overlap", "forward_ms", "backward_ms", "total_ms", "exchange_ms",
              "experts_ms", "hidden", "forward", "backward", "gflops_per_rank", "peak_gflops", "fraction",
              "of_first");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Samples& s = samples[i];
    rows.push_back(row_of(o, *subjects[i], s));
    const Variant& variant = subjects[i]->variant;
    std::printf(
        "%-9s %3d %-9s %4s %7s %11.2f %11.2f %11.2f %11.2f %11.2f %7s %8s %8s %15.1f %11.1f %9.3f %9.3f\n",
        variant.path.c_str(), static_cast<int>(subjects[i]->mesh().shape().ep), variant.routing.c_str(),
        variant.node_pool ? "on" : "off", variant.overlap.c_str(), median(s.forward_ms),
        median(s.backward_ms), median(s.total_ms), median(s.exchange_ms), median(s.experts_ms),
        percent(s.hidden).c_str(), percent(s.hidden_forward).c_str(), percent(s.hidden_backward).c_str(),
        median(s.gflops), median(s.peak), median(s.fraction), median(s.of_first));
  }
  bench::write_json(o.json, rows);
}

void run(const Options& o) {
  const bool bf16 = bench::dtype_from_option(o.dtype) == DType::kBF16;
  if (bf16 && Communicator::world().all_max(cpu_has_bf16() ? 0 : 1) > 0) {
    if (Communicator::world().rank() == 0) bench::report_no_bf16(o.json);
    return;
  }
  set_threads(o.threads);
  const auto meshes = meshes_of(o);
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const auto& mesh : meshes)
    for (const Variant& variant : variants_of(o))
      subjects.push_back(std::make_unique<Subject>(o, *mesh, variant));
  std::vector<Samples> samples(subjects.size());
  for (const auto& subject : subjects)
    for (int i = 0; i < o.warmup; ++i) subject->step();
  for (int i = 0; i < o.samples; ++i)
    for (std::size_t s = 0; s < subjects.size(); ++s) {
      measure(o, *subjects[s], samples[s]);
      samples[s].of_first.push_back(samples[s].total_ms.back() / samples[0].total_ms.back());
    }
  compare_overlap(subjects, samples);
  if (subjects.front()->mesh().world().rank() == 0) print(subjects, samples, o);
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
