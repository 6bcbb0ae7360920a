// How long does one MoE layer take, forward and backward, and how near does it come to the peak?
//
//   mpirun -n 2 build/bench/layer_bench --ep 2 --tokens 1024 --hidden 1024 --inter 768 --experts 32 --top-k 4
//
// --tokens is per rank (weak scaling). Every path at every ep takes its turn in one run, the peak is measured
// around each, and the slowest rank's time counts. 18 K T D F FLOPs a rank, the router left out. Weights are
// new in every step: `gmm` reads the masters, `gmm-packed` packs both faces once a step, `gmm-copy`
// transposes and copies them in every call, as upstream's grouped matmul does. With --dtype bf16 the peak of
// gmm and gmm-packed is that of bf16 dot products. --routing hot,balanced and --node-pool off,on take their
// turns too; `of_first` is a subject's time over that of the first in the same round:
//
//   mpirun -n 2 build/bench/layer_bench --ep 2 --top-k 2 --dispatcher shared --paths gmm --routing
//   balanced,hot
//       --node-pool off,on
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/moe/moe_layer.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>

#include "support/dispatcher.hpp"
#include "support/dtype.hpp"
#include "support/measure.hpp"
#include "support/options.hpp"
#include "support/routing.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 1024, hidden = 1024, inter = 768, experts = 32, top_k = 4;
  std::string ep = "1", paths = "gmm,loop", dispatcher = "alltoall", routing = "random", node_pool = "off";
  int threads = 1, warmup = 2, samples = 9;
  std::string dtype = "fp32", json;
};

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
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of gmm and gmm-packed: fp32, bf16")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "json", po::value(&o.json), "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  bench::dtype_from_option(o.dtype);
  bench::dispatcher_named(o.dispatcher);
  for (const std::string& name : bench::words(o.routing)) bench::routing_named(name);
  for (const std::string& word : bench::words(o.node_pool))
    if (word != "off" && word != "on")
      throw std::invalid_argument("--node-pool \"" + word + "\" is not valid; valid: off, on");
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

/// What is measured beside the others, on one mesh.
struct Variant {
  std::string path, routing;
  bool node_pool = false;
};

/// A copy of `values`, where the ranks of a pool find it if there is a memory of theirs.
RowBuffer in_memory(const std::shared_ptr<NodeMemory>& memory, ConstMatrixView values) {
  RowBuffer rows(memory);
  rows.reshape_uninitialised(values.rows, values.cols);
  copy(values, rows);
  return rows;
}

/// A layer of one variant with everything that its steps need.
class Subject {
 public:
  Subject(const Options& o, const Mesh& mesh, const Variant& variant)
      : variant(variant),
        mesh_(mesh),
        kernels_(kernels_of(variant.path, bench::dtype_from_option(o.dtype))),
        settings_(open_dispatcher(bench::dispatcher_named(o.dispatcher), mesh.ep(), o.experts)),
        weight_memory_(variant.node_pool ? settings_.memory : nullptr),
        resident_(experts_of(o.experts, mesh.shape().ep, mesh.ep().rank()).count),
        router_(normal(o.experts, o.hidden, 0.03, "router", 0)),
        d_router_(o.experts, o.hidden),
        gate_up_(weights(resident_ * 2 * o.inter, o.hidden, "gate_up")),
        d_gate_up_(in_memory(weight_memory_, Matrix(gate_up_.rows(), gate_up_.cols()))),
        down_(weights(resident_ * o.hidden, o.inter, "down")),
        d_down_(in_memory(weight_memory_, Matrix(down_.rows(), down_.cols()))),
        layer_({router_, d_router_, {resident_, gate_up_, down_, d_gate_up_, d_down_}},
               {o.experts, o.top_k, true}),
        dispatcher_(mesh.ep(), o.experts, settings_),
        hidden_(normal(o.tokens, o.hidden, 1, "tokens", mesh.world().rank())),
        d_output_(normal(o.tokens, o.hidden, 1, "upstream", mesh.world().rank())),
        output_(o.tokens, o.hidden),
        d_hidden_(o.tokens, o.hidden) {
    if (variant.node_pool && !settings_.memory)
      throw std::invalid_argument("--node-pool on needs --dispatcher shared or hierarchical");
    if (variant.node_pool && variant.path != "gmm" && variant.path != "loop")
      throw std::invalid_argument("--node-pool on reads the masters: choose --paths from gmm, loop");
    if (variant.node_pool) workspace_.pool.emplace(settings_.memory);
    const bench::Routing routing = bench::routing_named(variant.routing);
    if (routing == bench::Routing::kRandom) return;
    bench::read_logits(router_);
    bench::write_logits(routing, mesh.world().rank() * o.tokens, o.top_k, o.experts, hidden_);
  }

  struct Seconds {
    double forward = 0, backward = 0;
  };

  /// One step of all ranks with new weights, so that packing is paid; the slowest rank's seconds.
  Seconds step() {
    fill(d_router_, 0);
    fill(output_, 0);
    mesh_.world().barrier();
    const auto start = std::chrono::steady_clock::now();
    RouterStatistics statistics(router_.rows());
    layer_.forward(kernels_, dispatcher_, hidden_, {}, ++version_, output_, statistics, workspace_, clock_);
    const auto middle = std::chrono::steady_clock::now();
    layer_.backward(kernels_, dispatcher_, hidden_, {}, {}, d_output_, d_hidden_, workspace_, clock_,
                    Write::kReplace);
    const auto end = std::chrono::steady_clock::now();
    last_ = {mesh_.world().all_max(std::chrono::duration<double>(middle - start).count()),
             mesh_.world().all_max(std::chrono::duration<double>(end - middle).count())};
    return last_;
  }
  double last_seconds() const { return last_.forward + last_.backward; }

  const Mesh& mesh() const { return mesh_; }
  const Variant variant;
  DType dtype() const { return kernels_.grouped_matmul.element; }

 private:
  RowBuffer weights(Index rows, Index cols, const char* name) const {
    return in_memory(weight_memory_, normal(rows, cols, 0.03, name, mesh_.ep().rank()));
  }

  const Mesh& mesh_;
  KernelTable kernels_;
  DispatcherSettings settings_;
  std::shared_ptr<NodeMemory> weight_memory_;  // null: weights are the rank's own
  Index resident_;
  Matrix router_, d_router_;
  RowBuffer gate_up_, d_gate_up_, down_, d_down_;
  MoeLayer layer_;
  Dispatcher dispatcher_;
  Matrix hidden_, d_output_, output_, d_hidden_;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
  Seconds last_;
};

struct Samples {
  std::vector<double> forward_ms, backward_ms, total_ms, gflops, peak, fraction;
  std::vector<double> of_first;  // total_ms over the first subject's in the same round
};

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
          {"dtype", subject.dtype() == DType::kBF16 ? "bf16" : "fp32"},
          {"forward_ms", median(s.forward_ms)},
          {"backward_ms", median(s.backward_ms)},
          {"total_ms", median(s.total_ms)},
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
  const Subject::Seconds seconds = subject.step();
  const double after = bench::peak_gflops(subject.dtype(), o.threads, half_step);
  std::vector<double> peaks = world.all_gather(std::vector<double>{(before + after) / 2});
  double peak = 0;
  for (const double each : peaks) peak += each / world.size();
  const double total = seconds.forward + seconds.backward;
  const double gflops = 18e-9 * static_cast<double>(o.top_k * o.tokens * o.hidden * o.inter) / total;
  samples.forward_ms.push_back(1e3 * seconds.forward);
  samples.backward_ms.push_back(1e3 * seconds.backward);
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
        variants.push_back({path, routing, pool == "on"});
  return variants;
}

void print(const std::vector<std::unique_ptr<Subject>>& subjects, const std::vector<Samples>& samples,
           const Options& o) {
  std::printf("%s, %d ranks\n", bench::environment_line(o.threads).c_str(),
              subjects.front()->mesh().world().size());
  std::printf("%-9s %3s %-9s %4s %11s %11s %11s %15s %11s %9s %9s\n", "path", "ep", "routing", "pool",
              "forward_ms", "backward_ms", "total_ms", "gflops_per_rank", "peak_gflops", "fraction",
              "of_first");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Samples& s = samples[i];
    rows.push_back(row_of(o, *subjects[i], s));
    const Variant& variant = subjects[i]->variant;
    std::printf("%-9s %3d %-9s %4s %11.2f %11.2f %11.2f %15.1f %11.1f %9.3f %9.3f\n", variant.path.c_str(),
                static_cast<int>(subjects[i]->mesh().shape().ep), variant.routing.c_str(),
                variant.node_pool ? "on" : "off", median(s.forward_ms), median(s.backward_ms),
                median(s.total_ms), median(s.gflops), median(s.peak), median(s.fraction), median(s.of_first));
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
