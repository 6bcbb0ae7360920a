// How long does one MoE layer take, forward and backward, and how near does it come to the peak?
//
//   mpirun -n 2 build/bench/layer_bench --ep 2 --tokens 1024 --hidden 1024 --inter 768 --experts 32 --top-k 4
//
// --tokens is per rank (weak scaling). Every path at every ep takes its turn in one run, the peak is measured
// around each, and the slowest rank's time counts. 18 K T D F FLOPs a rank, the router left out. Weights are
// new in every step: `gmm` reads the masters, `gmm-packed` packs both faces once a step, `gmm-copy`
// transposes and copies them in every call, as upstream's grouped matmul does. With --dtype bf16 the peak of
// gmm and gmm-packed is that of bf16 dot products.
//
// --overlap off,4 asks how much of the rows' travel the products hide: (off - on) / min(exchange, experts) of
// the same round, where exchange and experts are those of the round without overlap.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/moe/moe_layer.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>

#include "support/dispatcher.hpp"
#include "support/dtype.hpp"
#include "support/measure.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 1024, hidden = 1024, inter = 768, experts = 32, top_k = 4;
  std::string ep = "1", paths = "gmm,loop", dispatcher = "alltoall", overlap = "off";
  int threads = 1, warmup = 2, samples = 9;
  std::string dtype = "fp32", json;
};

/// 0: off.
Index chunks_of(const std::string& overlap) {
  if (overlap == "off") return 0;
  const Index chunks = std::atoll(overlap.c_str());
  if (chunks < 1)
    throw std::runtime_error("unknown --overlap " + overlap + "; known: off, or a number from 1");
  return chunks;
}

DispatcherSettings dispatcher_of(const Options& o, const Communicator& ep, const std::string& overlap) {
  DispatcherSettings settings = open_dispatcher(bench::dispatcher_named(o.dispatcher), ep, o.experts);
  settings.chunks = chunks_of(overlap);
  return settings;
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
      "dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher), "of alltoall, shared")(
      "overlap", po::value(&o.overlap)->default_value(o.overlap),
      "off, or chunks of experts that compute while rows of alltoall travel, a list: off,2,4")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of gmm and gmm-packed: fp32, bf16")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "json", po::value(&o.json), "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  bench::dtype_from_option(o.dtype);
  bench::dispatcher_named(o.dispatcher);
  for (const std::string& overlap : bench::words(o.overlap)) chunks_of(overlap);
  return o;
}

Matrix normal(Index rows, Index cols, double scale, const char* name, Index rank) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(static_cast<std::uint64_t>(rank), stream_of(name));
  parallel_for(rows, [&](Index i) {
    for (Index j = 0; j < cols; ++j)
      m.row(i)[j] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i * cols + j)));
  });
  return m;
}

/// Upstream's trap: each call transposes and copies the weights of every resident expert.
PackedWeights& copied(const GroupedWeights& weights) {
  static PackedWeights copy;  // its memory is kept, as an allocator with a cache would
  copy.pack(weights, DType::kF32);
  return copy;
}

KernelTable kernels_of(const std::string& path, DType dtype) {
  KernelTable table;
  table.swiglu = fused_swiglu();
  if (path == "loop") return table;
  table.grouped_matmul = bench::packed_kernel(path == "gmm-copy" ? DType::kF32 : dtype);
  table.grouped_matmul.uses_packed = path == "gmm-packed";
  if (path == "gmm" || path == "gmm-packed") return table;
  if (path != "gmm-copy")
    throw std::runtime_error("unknown path " + path + "; valid: gmm, loop, gmm-packed, gmm-copy");
  table.grouped_matmul.forward = [](const GroupedWeights& w, const PackedWeights&, ConstRows x,
                                    const GroupedRows& rows, MatrixView y) {
    packed_grouped_matmul().forward(w, copied(w), x, rows, y);
  };
  table.grouped_matmul.input_grad = [](const GroupedWeights& w, const PackedWeights&, ConstRows dy,
                                       const GroupedRows& rows, MatrixView dx) {
    packed_grouped_matmul().input_grad(w, copied(w), dy, rows, dx);
  };
  return table;
}

/// A layer of one path with everything that its steps need.
class Subject {
 public:
  Subject(const Options& o, const Mesh& mesh, const std::string& path, const std::string& overlap)
      : path(path),
        overlap(overlap),
        mesh_(mesh),
        kernels_(kernels_of(path, bench::dtype_from_option(o.dtype))),
        resident_(experts_of(o.experts, mesh.shape().ep, mesh.ep().rank()).count),
        router_(normal(o.experts, o.hidden, 0.03, "router", 0)),
        d_router_(o.experts, o.hidden),
        gate_up_(normal(resident_ * 2 * o.inter, o.hidden, 0.03, "gate_up", mesh.ep().rank())),
        d_gate_up_(gate_up_.rows(), gate_up_.cols()),
        down_(normal(resident_ * o.hidden, o.inter, 0.03, "down", mesh.ep().rank())),
        d_down_(down_.rows(), down_.cols()),
        layer_({router_, d_router_, {resident_, gate_up_, down_, d_gate_up_, d_down_}},
               {o.experts, o.top_k, true}),
        dispatcher_(mesh.ep(), o.experts, dispatcher_of(o, mesh.ep(), overlap)),
        hidden_(normal(o.tokens, o.hidden, 1, "tokens", mesh.world().rank())),
        d_output_(normal(o.tokens, o.hidden, 1, "upstream", mesh.world().rank())),
        output_(o.tokens, o.hidden),
        d_hidden_(o.tokens, o.hidden) {}

  /// The slowest rank's, of one pass.
  struct Pass {
    double seconds = 0;
    double exchange = 0, experts = 0;  // of those, in dispatch and combine, and in the products
  };
  struct Step {
    Pass forward, backward;
    double seconds() const { return forward.seconds + backward.seconds; }
  };

  /// One step of all ranks with new weights, so that packing is paid.
  Step step() {
    fill(d_router_, 0);
    fill(output_, 0);
    mesh_.world().barrier();
    RouterStatistics statistics(router_.rows());
    clock_.start();
    layer_.forward(kernels_, dispatcher_, hidden_, {}, ++version_, output_, statistics, workspace_, clock_);
    const auto forward = clock_.take();
    layer_.backward(kernels_, dispatcher_, hidden_, {}, {}, d_output_, d_hidden_, workspace_, clock_,
                    Write::kReplace);
    const auto backward = clock_.take();
    last_ = {slowest(forward), slowest(backward)};
    return last_;
  }
  double last_seconds() const { return last_.seconds(); }

  const Mesh& mesh() const { return mesh_; }
  const std::string path, overlap;
  DType dtype() const { return kernels_.grouped_matmul.element; }

 private:
  Pass slowest(const std::array<double, kPhases>& seconds) const {
    const auto of = [&](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; };
    const Communicator& world = mesh_.world();
    return {world.all_max(std::accumulate(seconds.begin(), seconds.end(), 0.0)),
            world.all_max(of(Phase::kDispatch) + of(Phase::kCombine)), world.all_max(of(Phase::kExperts))};
  }

  const Mesh& mesh_;
  KernelTable kernels_;
  Index resident_;
  Matrix router_, d_router_, gate_up_, d_gate_up_, down_, d_down_;
  MoeLayer layer_;
  Dispatcher dispatcher_;
  Matrix hidden_, d_output_, output_, d_hidden_;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
  Step last_;
};

struct Samples {
  std::vector<double> forward_ms, backward_ms, total_ms, gflops, peak, fraction;
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
  return {{"path", subject.path},
          {"ranks", subject.mesh().world().size()},
          {"ep", subject.mesh().shape().ep},
          {"threads", o.threads},
          {"tokens", o.tokens},
          {"hidden", o.hidden},
          {"inter", o.inter},
          {"experts", o.experts},
          {"top_k", o.top_k},
          {"dispatcher", o.dispatcher},
          {"overlap", subject.overlap},
          {"dtype", subject.dtype() == DType::kBF16 ? "bf16" : "fp32"},
          {"forward_ms", median(s.forward_ms)},
          {"backward_ms", median(s.backward_ms)},
          {"total_ms", median(s.total_ms)},
          {"exchange_ms", median(s.exchange_ms)},
          {"experts_ms", median(s.experts_ms)},
          {"hidden", s.hidden.empty() ? 0 : median(s.hidden)},
          {"hidden_forward", s.hidden.empty() ? 0 : median(s.hidden_forward)},
          {"hidden_backward", s.hidden.empty() ? 0 : median(s.hidden_backward)},
          {"gflops_per_rank", median(s.gflops)},
          {"peak_gflops", median(s.peak)},
          {"fraction", f.median},
          {"fraction_p10", f.p10},
          {"fraction_p90", f.p90},
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

/// Each with the one before it that differs in nothing but its overlap, which is off.
void compare_overlap(const std::vector<std::unique_ptr<Subject>>& subjects, std::vector<Samples>& samples) {
  const Samples* off = nullptr;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const bool follows = i > 0 && subjects[i]->path == subjects[i - 1]->path &&
                         &subjects[i]->mesh() == &subjects[i - 1]->mesh();
    if (!follows) off = nullptr;
    if (subjects[i]->overlap == "off")
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
  std::printf("%-9s %3s %7s %11s %12s %10s %12s %11s %7s %8s %9s %16s %12s %9s\n", "path", "ep", "overlap",
              "forward_ms", "backward_ms", "total_ms", "exchange_ms", "experts_ms", "hidden", "forward",
              "backward", "gflops_per_rank", "peak_gflops", "fraction");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Samples& s = samples[i];
    rows.push_back(row_of(o, *subjects[i], s));
    std::printf("%-9s %3d %7s %11.2f %12.2f %10.2f %12.2f %11.2f %7s %8s %9s %16.1f %12.1f %9.3f\n",
                subjects[i]->path.c_str(), static_cast<int>(subjects[i]->mesh().shape().ep),
                subjects[i]->overlap.c_str(), median(s.forward_ms), median(s.backward_ms), median(s.total_ms),
                median(s.exchange_ms), median(s.experts_ms), percent(s.hidden).c_str(),
                percent(s.hidden_forward).c_str(), percent(s.hidden_backward).c_str(), median(s.gflops),
                median(s.peak), median(s.fraction));
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
    for (const std::string& path : bench::words(o.paths))
      for (const std::string& overlap : bench::words(o.overlap))
        subjects.push_back(std::make_unique<Subject>(o, *mesh, path, overlap));
  std::vector<Samples> samples(subjects.size());
  for (const auto& subject : subjects)
    for (int i = 0; i < o.warmup; ++i) subject->step();
  for (int i = 0; i < o.samples; ++i)
    for (std::size_t s = 0; s < subjects.size(); ++s) measure(o, *subjects[s], samples[s]);
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
