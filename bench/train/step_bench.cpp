// How many tokens does a whole training step take in a second, for each GFLOP/s that the machine could do?
//
//   mpirun -n 1 build/bench/step_bench                        the two shapes of the table in bench/README.md
//   mpirun -n 2 build/bench/step_bench --case custom --hidden 512 --experts 16 --ep 2
//   mpirun -n 2 build/bench/step_bench --case custom --path gmm --ep 2 --dispatcher shared
//     --routing balanced,hot --node-pool off,on
//
// Forward, backward, gradient norm and AdamW; each path takes its turn in every round, between two
// measurements of the fp32 FMA peak. gmm has every kernel; loop multiplies by OpenBLAS. --dtype is gmm's. The
// slowest rank's time counts; sequences are per rank. `of_first` is a subject's time over that of the first
// in the same round.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"

#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>

#include "support/dispatcher.hpp"
#include "support/dtype.hpp"
#include "moeloom/measure/peaks.hpp"
#include "support/json_file.hpp"
#include "moeloom/measure/paired.hpp"
#include "support/options.hpp"
#include "support/training.hpp"

namespace {

using namespace moeloom;

struct Case {
  std::string name = "custom";
  ModelConfig model;
  Index sequences = 16, sequence_length = 256;
};

struct Options {
  std::string which = "all", path = "both", dtype = "fp32", json;
  std::string dispatcher = "alltoall", routing = "random", node_pool = "off";
  Case custom;
  Index ep = 1;
  int threads = 1, samples = 7;
};

ModelConfig model_of(Index hidden, Index inter, Index layers, Index head_dim, Index experts, Index top_k) {
  ModelConfig model;  // vocabulary 256
  model.hidden_size = hidden;
  model.moe_intermediate_size = inter;
  model.num_hidden_layers = layers;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = head_dim;
  model.num_experts = experts;
  model.num_experts_per_tok = top_k;
  return model;
}

std::vector<Case> cases_of(const Options& o) {
  const std::vector<Case> known = {{"d256", model_of(256, 512, 6, 32, 8, 2), 16, 256},
                                   {"d512", model_of(512, 384, 4, 64, 32, 4), 8, 256}};
  if (o.which == "all") return known;
  if (o.which == "custom") return {o.custom};
  for (const Case& each : known)
    if (each.name == o.which) return {each};
  throw std::invalid_argument("unknown --case " + o.which + "; known: all, d256, d512, custom");
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  o.custom.model = model_of(256, 512, 6, 32, 8, 2);
  ModelConfig& m = o.custom.model;
  po::options_description known("step_bench: tokens a second of a whole training step, beside the FMA peak");
  const auto size = [&known](const char* name, Index* target, const char* text) {
    known.add_options()(name, po::value(target)->default_value(*target), text);
  };
  known.add_options()("case", po::value(&o.which)->default_value(o.which),
                      "all, d256, d512, or custom: the sizes below")(
      "path", po::value(&o.path)->default_value(o.path), "gmm, loop, or both in turn")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of the gmm path: fp32, bf16")(
      "dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher),
      "alltoall, shared, hierarchical or allgather")(
      "routing", po::value(&o.routing)->default_value(o.routing), "a list of random, balanced, hot")(
      "node-pool", po::value(&o.node_pool)->default_value(o.node_pool),
      "a list of off, on: ranks of a node run each other's experts")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "json", po::value(&o.json), "also write the rows to this file");
  size("ep", &o.ep, "ranks that share the experts");
  size("hidden", &m.hidden_size, "hidden size");
  size("inter", &m.moe_intermediate_size, "intermediate size of an expert");
  size("layers", &m.num_hidden_layers, "decoder layers");
  size("heads", &m.num_attention_heads, "attention heads");
  size("kv-heads", &m.num_key_value_heads, "key-value heads");
  size("head-dim", &m.head_dim, "size of a head");
  size("experts", &m.num_experts, "experts of a layer");
  size("top-k", &m.num_experts_per_tok, "experts a token");
  size("vocab", &m.vocab_size, "vocabulary, at least 256");
  size("sequences", &o.custom.sequences, "sequences a rank");
  size("seq-len", &o.custom.sequence_length, "tokens of a sequence");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.path != "both" && o.path != "gmm" && o.path != "loop")
    throw std::invalid_argument("unknown --path " + o.path + "; known: gmm, loop, both");
  bench::dispatcher_named(o.dispatcher);
  for (const std::string& name : bench::words(o.routing)) bench::routing_named(name);
  for (const std::string& word : bench::words(o.node_pool)) bench::is_on("--node-pool", word);
  return o;
}

struct Variant {
  std::string path, routing;
  bool node_pool = false;
};

std::vector<Variant> variants_of(const Options& o) {
  std::vector<Variant> variants;
  for (const std::string& path : bench::words(o.path == "both" ? "gmm,loop" : o.path))
    for (const std::string& routing : bench::words(o.routing))
      for (const std::string& pool : bench::words(o.node_pool))
        variants.push_back({path, routing, bench::is_on("--node-pool", pool)});
  return variants;
}

struct Subject {
  Variant variant;
  std::unique_ptr<bench::Subject> training;
};

Subject subject_of(const Options& o, const Case& c, const Mesh& mesh, const TokenSource& tokens,
                   const Variant& variant) {
  DispatcherSettings dispatcher =
      open_dispatcher(bench::dispatcher_named(o.dispatcher), mesh.ep(), c.model.num_experts);
  dispatcher.node_pool = variant.node_pool;
  if (variant.node_pool && !dispatcher.memory)
    throw std::invalid_argument("--node-pool on needs --dispatcher shared or hierarchical");
  const KernelTable kernels = bench::kernels_of(variant.path == "gmm", bench::dtype_from_option(o.dtype));
  return {variant, std::make_unique<bench::Subject>(c.model, bench::RankBatch{c.sequences, c.sequence_length},
                                                    mesh, tokens, kernels,
                                                    bench::routing_named(variant.routing), dispatcher)};
}

struct Samples {
  std::vector<double> seconds, tokens_per_s, peak, per_gflops;
  std::vector<double> of_first;  // seconds over the first subject's in the same round
  std::array<double, kPhases> phases{};
  double last_seconds = 0;  // of the slowest rank: how long the peak is measured
};

void measure(const Options& o, const Mesh& mesh, const Subject& subject, Samples& samples) {
  const double before = bench::fma_peak_gflops(o.threads, samples.last_seconds / 2);
  mesh.world().barrier();
  const StepReport report = subject.training->step();
  const double after = bench::fma_peak_gflops(o.threads, samples.last_seconds / 2);
  const double seconds = mesh.world().all_max(report.seconds);
  samples.last_seconds = seconds;
  double peak = 0;
  for (const double each : mesh.world().all_gather(std::vector<double>{(before + after) / 2})) peak += each;
  const double rate = static_cast<double>(report.tokens) / seconds;
  samples.seconds.push_back(seconds);
  samples.tokens_per_s.push_back(rate);
  samples.peak.push_back(peak);
  samples.per_gflops.push_back(rate / peak);
  for (std::size_t i = 0; i < kPhases; ++i) samples.phases[i] += report.phase_seconds[i];
}

nlohmann::ordered_json row_of(const Options& o, const Case& c, const Mesh& mesh, const Variant& variant,
                              const Samples& s) {
  const auto ratio = bench::percentiles(s.per_gflops);
  const auto of_first = bench::percentiles(s.of_first);
  nlohmann::ordered_json row = {{"case", c.name},
                                {"path", variant.path},
                                {"routing", variant.routing},
                                {"node_pool", variant.node_pool},
                                {"dispatcher", o.dispatcher},
                                {"ranks", mesh.world().size()},
                                {"ep", o.ep},
                                {"threads", o.threads},
                                {"dtype", variant.path == "gmm" ? o.dtype : "fp32"},
                                {"sequences", c.sequences},
                                {"seq_len", c.sequence_length},
                                {"hidden", c.model.hidden_size},
                                {"inter", c.model.moe_intermediate_size},
                                {"layers", c.model.num_hidden_layers},
                                {"experts", c.model.num_experts},
                                {"top_k", c.model.num_experts_per_tok},
                                {"step_ms", 1e3 * bench::percentiles(s.seconds).median},
                                {"tokens_per_s", bench::percentiles(s.tokens_per_s).median},
                                {"peak_gflops", bench::percentiles(s.peak).median},
                                {"tokens_per_s_per_gflops", ratio.median},
                                {"tokens_per_s_per_gflops_p10", ratio.p10},
                                {"tokens_per_s_per_gflops_p90", ratio.p90},
                                {"of_first", of_first.median},
                                {"of_first_p10", of_first.p10},
                                {"of_first_p90", of_first.p90},
                                {"commit", bench::commit_text()}};
  for (std::size_t i = 0; i < kPhases; ++i)
    row["ms_" + std::string(name_of(static_cast<Phase>(i)))] =
        1e3 * s.phases[i] / static_cast<double>(s.per_gflops.size());
  return row;
}

void print(const nlohmann::ordered_json& row) {
  const auto number = [&row](const char* key) { return row.at(key).get<double>(); };
  const auto text = [&row](const char* key) { return row.at(key).get<std::string>(); };
  std::printf(
      "%-8s %-6s %-9s %4s %12.0f %12.1f %10.2f (%.2f..%.2f) %9.3f (%.3f..%.3f)  ms:", text("case").c_str(),
      text("path").c_str(), text("routing").c_str(), row["node_pool"].get<bool>() ? "on" : "off",
      number("tokens_per_s"), number("peak_gflops"), number("tokens_per_s_per_gflops"),
      number("tokens_per_s_per_gflops_p10"), number("tokens_per_s_per_gflops_p90"), number("of_first"),
      number("of_first_p10"), number("of_first_p90"));
  for (const auto& [key, value] : row.items())
    if (key.starts_with("ms_") && value.get<double>() >= 1)
      std::printf(" %s %.0f", key.c_str() + 3, value.get<double>());
  std::printf("\n");
  std::fflush(stdout);
}

void run_case(const Options& o, const Case& c, const Mesh& mesh, const TokenSource& tokens,
              nlohmann::ordered_json& rows) {
  std::vector<Subject> subjects;
  for (const Variant& variant : variants_of(o)) subjects.push_back(subject_of(o, c, mesh, tokens, variant));
  std::vector<Samples> samples(subjects.size());
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    subjects[s].training->step();
    samples[s].last_seconds = mesh.world().all_max(subjects[s].training->step().seconds);
  }
  for (int i = 0; i < o.samples; ++i)
    for (std::size_t s = 0; s < subjects.size(); ++s) {
      measure(o, mesh, subjects[s], samples[s]);
      samples[s].of_first.push_back(samples[s].seconds.back() / samples[0].seconds.back());
    }
  if (mesh.world().rank() != 0) return;
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    rows.push_back(row_of(o, c, mesh, subjects[s].variant, samples[s]));
    print(rows.back());
  }
}

void run(const Options& o, Communicator world) {
  MeshShape shape;
  shape.ep = o.ep;
  shape.dp = o.ep > 0 ? world.size() / o.ep : 0;
  std::vector<std::string> violations;
  for (const Case& c : cases_of(o)) {
    for (const auto& list :
         {mesh_violations(shape, world.size(), c.model.num_experts), config_violations(c.model)})
      violations.insert(violations.end(), list.begin(), list.end());
  }
  if (!violations.empty()) throw ConfigError(violations);
  if (bench::dtype_from_option(o.dtype) == DType::kBF16 && world.all_max(cpu_has_bf16() ? 0 : 1) > 0) {
    if (world.rank() == 0) bench::report_no_bf16(o.json);
    return;
  }
  set_threads(o.threads);
  const Mesh mesh(std::move(world), shape);
  const bench::RandomText text(mesh.world().rank());
  const TokenSource tokens(text.path(), TokenFormat::kText);
  if (mesh.world().rank() == 0) {
    std::printf("%s, %s, %d ranks\n", bench::environment_line(o.threads).c_str(), shape.text().c_str(),
                mesh.world().size());
    std::printf("%-8s %-6s %-9s %4s %12s %12s %10s %25s\n", "case", "path", "routing", "pool", "tokens_per_s",
                "peak_gflops", "ratio", "of_first");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Case& c : cases_of(o)) run_case(o, c, mesh, tokens, rows);
  if (mesh.world().rank() == 0) bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o, Communicator::world());
} catch (const std::exception& error) {
  std::cerr << "step_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
