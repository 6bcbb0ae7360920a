// How many tokens does a whole training step take in a second, for each GFLOP/s that the machine could do?
//
//   mpirun -n 1 build/bench/step_bench                        the two shapes of
//   bench/results/2026-11-21-step.txt mpirun -n 2 build/bench/step_bench --case custom --hidden 512 --experts
//   16 --ep 2 mpirun -n 2 build/bench/step_bench --case custom --path gmm --ep 2 --dispatcher shared
//     --routing balanced,hot --rebalance off,on
//
//   mpirun ... build/bench/step_bench --case custom --path gmm --overlap off,reduce,all
//   mpirun ... build/bench/step_bench --case custom --path gmm --ep 4 --alone on --overlap off,all
//
// Forward, backward, gradient norm and AdamW; each path takes its turn in every round, between two
// measurements of the fp32 FMA peak. gmm has every kernel; loop multiplies by OpenBLAS. --dtype is gmm's. The
// slowest rank's time counts; sequences are per rank. `of_first` is a subject's time over that of the first
// in the same round. --routing natural is an untrained router's; others route a token by its id. The first
// steps of each are checked against ep = 1 before it is timed; --check off leaves it out. cpu
// is the time that the rank's computing thread took of its processor. --rebalance and --net-bytes-per-second
// are those of layer_bench. One rank also gets the limit of its step (step_limit.hpp), by peaks and copies
// measured around each sample.
#include "measure/step_subject.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/step_limit.hpp"

#include <cstdio>
#include <deque>
#include <exception>
#include <iostream>
#include <map>
#include <optional>

#include "support/check.hpp"
#include "support/dispatcher.hpp"
#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/long_copy.hpp"
#include "support/options.hpp"
#include "support/replica_rates.hpp"

namespace {

using namespace moeloom;

struct Case {
  std::string name = "custom";
  ModelConfig model;
  Index sequences = 16, sequence_length = 256;
};

struct Options {
  std::string which = "all", path = "both", dtype = "fp32", json;
  std::string dispatcher = "alltoall", routing = "natural", rebalance = "off", overlap = "off", check = "on";
  std::string alone = "off";
  Case custom;
  Index ep = 1, chunks = 0;
  double net_bytes_per_second = 0;  // 0: the built-in rate
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

/// None: as an untrained router has it.
std::optional<Workload> routing_named(const std::string& name) {
  if (name == "natural") return std::nullopt;
  return workload_named(name);
}

Exchange travel_with(const std::string& word) {
  if (word == "off") return {};
  if (word == "reduce") return {.overlap_reduce = true};
  if (word == "all") return {.overlap_reduce = true, .overlap_gather = true};
  throw std::invalid_argument("unknown --overlap " + word + "; known: off, reduce, all");
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
      "alltoall, shared or hierarchical")(
      "routing", po::value(&o.routing)->default_value(o.routing),
      "a list of natural, balanced, random, hot, ... (moeloom bench ep --help)")(
      "rebalance", po::value(&o.rebalance)->default_value(o.rebalance),
      "a list of off, on: experts get replicas on other ranks where that pays")(
      "net-bytes-per-second", po::value(&o.net_bytes_per_second)->default_value(o.net_bytes_per_second),
      "of a host's link, for --rebalance; 0: the built-in rate")(
      "overlap", po::value(&o.overlap)->default_value(o.overlap),
      "a list of off, reduce, all: whether sums of gradients travel under backward, and new weights under "
      "the next forward")(
      "alone", po::value(&o.alone)->default_value(o.alone),
      "on: in each round also every rank by itself, at the same time, with as many tokens and all experts; "
      "of_first is then over that")("threads", po::value(&o.threads)->default_value(o.threads),
                                    "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "check", po::value(&o.check)->default_value(o.check), "on, off: compare first steps with ep = 1 first")(
      "json", po::value(&o.json), "also write the rows to this file");
  size("ep", &o.ep, "ranks that share the experts");
  size("chunks", &o.chunks, "in which rows travel while experts compute; 0: whole");
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
  for (const std::string& name : bench::words(o.routing)) routing_named(name);
  for (const std::string& word : bench::words(o.rebalance)) bench::is_on("--rebalance", word);
  for (const std::string& word : bench::words(o.overlap)) travel_with(word);
  bench::is_on("--check", o.check);
  if (bench::is_on("--alone", o.alone) && bench::words(o.routing).size() > 1)
    throw std::invalid_argument("--alone on is for one --routing");
  return o;
}

struct Variant {
  std::string path, routing;
  bool rebalance = false;
  std::string overlap;
  bool alone = false;
};

std::vector<Variant> variants_of(const Options& o) {
  std::vector<Variant> variants;
  if (bench::is_on("--alone", o.alone))
    variants.push_back(
        {bench::words(o.path == "both" ? "gmm" : o.path).front(), o.routing, false, "off", true});
  for (const std::string& path : bench::words(o.path == "both" ? "gmm,loop" : o.path))
    for (const std::string& routing : bench::words(o.routing))
      for (const std::string& rebalance : bench::words(o.rebalance))
        for (const std::string& overlap : bench::words(o.overlap))
          variants.push_back({path, routing, bench::is_on("--rebalance", rebalance), overlap});
  return variants;
}

struct Subject {
  Subject(const Options& o, const TrainingCase& of, const Mesh& mesh, const TokenSource& tokens,
          const Variant& variant_)
      : variant(variant_),
        training(of, mesh, tokens,
                 bench::model_kernels(variant.path == "gmm", bench::dtype_from_option(o.dtype)),
                 settings_of(o, of, mesh, variant), travel_with(variant.overlap)) {}
  static DispatcherSettings settings_of(const Options& o, const TrainingCase& of, const Mesh& mesh,
                                        const Variant& variant) {
    if (variant.alone) return {};
    DispatcherSettings settings = bench::dispatcher_settings(o.dispatcher, mesh.ep(), of.model.num_experts);
    settings.chunks = o.chunks;
    if (variant.rebalance)
      settings.rebalance = bench::replica_rates(of.model, mesh, settings.kind,
                                                {.sequences = of.sequences, .length = of.sequence_length},
                                                o.threads, o.net_bytes_per_second);
    return settings;
  }
  Variant variant;
  StepSubject training;
};

struct Measured {
  Samples seconds, tokens_per_s, peak, per_gflops;
  Samples cpu_seconds;  // of the computing thread, on the rank where it took the longest
  Samples of_first;     // seconds over the first subject's in the same round
  PhaseTimes phases{};
  PhaseSeconds limits{};  // sums, as phases
  Samples of_limit;
  double last_seconds = 0;  // of the slowest rank: how long the peak is measured
};

/// Of a rank by itself: the limit of its step.
class LimitMeter {
 public:
  LimitMeter(const Options& o, const Case& c, const Mesh& mesh)
      : dtype_(bench::dtype_from_option(o.dtype)),
        threads_(o.threads),
        parts_(bench::parts_of_step(c.model, specs_here(c.model, mesh), c.sequences * c.sequence_length,
                                    c.sequence_length)) {}

  /// Measures for so long.
  void look(double seconds) {
    const auto copies = std::max<Index>(1, static_cast<Index>(seconds / 3 / copy_.seconds()));
    double copied = 0;
    for (Index i = 0; i < copies; ++i) copied += copy_.seconds();
    rates_.copy += static_cast<double>(copies) * copy_.bytes() / copied;
    rates_.fp32_peak += 1e9 * fma_peak_gflops(threads_, seconds / 3);
    rates_.peak += 1e9 * peak_gflops(dtype_, threads_, seconds / 3);
    ++looks_;
  }
  /// By the means since the last one.
  PhaseSeconds take() {
    const double looks = std::exchange(looks_, 0);
    const auto [peak, fp32_peak, copy] = std::exchange(rates_, {});
    return bench::limits_of(parts_, {peak / looks, fp32_peak / looks, copy / looks});
  }

 private:
  DType dtype_;
  int threads_;
  std::vector<bench::StepPart> parts_;
  bench::LongCopy copy_{Index{1} << 25};
  bench::StepRates rates_;
  int looks_ = 0;
};

void add(const PhaseSeconds& limits, double seconds, Measured& measured) {
  for (std::size_t i = 0; i < kPhases; ++i) measured.limits[i] += limits[i];
  measured.of_limit.push_back(total(limits) / seconds);
}

void measure(const Options& o, const Mesh& mesh, Subject& subject, LimitMeter* meter, Measured& measured) {
  StepSample step;
  if (meter != nullptr) meter->look(measured.last_seconds / 2);
  const BesidePeak beside =
      beside_peak([&](double seconds) { return fma_peak_gflops(o.threads, seconds); }, measured.last_seconds,
                  [&] {
                    mesh.world().barrier();  // which ranks that train alone do not meet in
                    return (step = subject.training.step()).seconds;
                  });
  const double seconds = mesh.world().all_max(beside.seconds);
  if (meter != nullptr) {
    meter->look(seconds / 2);
    add(meter->take(), seconds, measured);
  }
  const Index tokens = subject.variant.alone ? step.tokens * mesh.world().size() : step.tokens;
  measured.last_seconds = seconds;
  measured.cpu_seconds.push_back(mesh.world().all_max(step.processor_seconds));
  double peak = 0;
  for (const double each : mesh.world().all_gather(std::vector<double>{beside.gflops})) peak += each;
  const double rate = static_cast<double>(tokens) / seconds;
  measured.seconds.push_back(seconds);
  measured.tokens_per_s.push_back(rate);
  measured.peak.push_back(peak);
  measured.per_gflops.push_back(rate / peak);
  for (std::size_t i = 0; i < kPhases; ++i) measured.phases[i] += step.phase_seconds[i];
}

nlohmann::ordered_json row_of(const Options& o, const Case& c, const Mesh& mesh, const Variant& variant,
                              const Measured& s) {
  const auto ratio = spread_of(s.per_gflops);
  const auto of_first = spread_of(s.of_first);
  nlohmann::ordered_json row = {{"case", c.name},
                                {"path", variant.path},
                                {"routing", variant.routing},
                                {"rebalance", variant.rebalance},
                                {"overlap", variant.overlap},
                                {"alone", variant.alone},
                                {"chunks", variant.alone ? 0 : o.chunks},
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
                                {"step_ms", 1e3 * median(s.seconds)},
                                {"cpu_ms", 1e3 * median(s.cpu_seconds)},
                                {"tokens_per_s", median(s.tokens_per_s)},
                                {"peak_gflops", median(s.peak)},
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
  if (s.of_limit.empty()) return row;
  const auto of_limit = spread_of(s.of_limit);
  row["of_limit"] = of_limit.median;
  row["of_limit_p10"] = of_limit.p10;
  row["of_limit_p90"] = of_limit.p90;
  for (std::size_t i = 0; i < kPhases; ++i)
    row["limit_ms_" + std::string(name_of(static_cast<Phase>(i)))] =
        1e3 * s.limits[i] / static_cast<double>(s.of_limit.size());
  return row;
}

void print_limits(const nlohmann::ordered_json& row) {
  const auto number = [&row](const std::string& key) { return row.at(key).get<double>(); };
  std::printf("  %-10s %9s %9s %7s\n", "phase", "ms", "limit", "share");
  for (std::size_t i = 0; i < kPhases; ++i) {
    const std::string name(name_of(static_cast<Phase>(i)));
    const double ms = number("ms_" + name), limit = number("limit_ms_" + name);
    if (ms >= 0.05 || limit > 0)
      std::printf("  %-10s %9.1f %9.1f %6.0f%%\n", name.c_str(), ms, limit, 100 * limit / ms);
  }
  std::printf("  step %.1f ms, %.0f %% (%.0f to %.0f) of its limit\n", number("step_ms"),
              100 * number("of_limit"), 100 * number("of_limit_p10"), 100 * number("of_limit_p90"));
}

void print(const nlohmann::ordered_json& row) {
  const auto number = [&row](const char* key) { return row.at(key).get<double>(); };
  const auto text = [&row](const char* key) { return row.at(key).get<std::string>(); };
  std::printf("%-8s %-6s %-9s %9s %-10s %12.0f %12.1f %10.2f (%.2f..%.2f) %9.3f (%.3f..%.3f)  cpu %.0f ms:",
              text("case").c_str(), text("path").c_str(), text("routing").c_str(),
              row["rebalance"].get<bool>() ? "on" : "off",
              row["alone"].get<bool>() ? "alone" : text("overlap").c_str(), number("tokens_per_s"),
              number("peak_gflops"), number("tokens_per_s_per_gflops"), number("tokens_per_s_per_gflops_p10"),
              number("tokens_per_s_per_gflops_p90"), number("of_first"), number("of_first_p10"),
              number("of_first_p90"), number("cpu_ms"));
  for (const auto& [key, value] : row.items())
    if (key.starts_with("ms_") && value.get<double>() >= 1)
      std::printf(" %s %.0f", key.c_str() + 3, value.get<double>());
  std::printf("\n");
  if (row.contains("of_limit")) print_limits(row);
  std::fflush(stdout);
}

/// One model, with one routing after the other.
std::map<std::string, TrainingCase> routed_cases(const Options& o, const Case& c, const Mesh& mesh) {
  std::map<std::string, TrainingCase> cases;
  for (const std::string& name : bench::words(o.routing))
    cases[name] = {c.model, c.sequences * mesh.world().size(), c.sequence_length, 1, routing_named(name)};
  return cases;
}

void check(const Mesh& mesh, const std::map<std::string, TrainingCase>& cases, const TokenSource& tokens,
           DType dtype, std::deque<Subject>& subjects) {
  const Mesh without_ep(Communicator::world(), MeshShape{0, 1}.completed(mesh.world().size()));
  for (const auto& [name, each] : cases) {
    const StepCheck check(each, without_ep, tokens);
    for (Subject& subject : subjects)
      if (subject.variant.routing == name && !subject.variant.alone)
        bench::refuse_unless_right(subject.variant.path + ", " + name, check.error_of(subject.training),
                                   StepCheck::tolerance(subject.variant.path == "gmm" ? dtype : DType::kF32));
  }
}

void run_case(const Options& o, const Case& c, const Mesh& mesh, const TokenSource& tokens,
              nlohmann::ordered_json& rows) {
  const std::map<std::string, TrainingCase> cases = routed_cases(o, c, mesh);
  std::deque<Subject> subjects;
  const Mesh by_itself(Communicator::self(), MeshShape{1, 1});
  TrainingCase own = cases.begin()->second;
  own.sequences = c.sequences;
  for (const Variant& variant : variants_of(o)) {
    if (variant.alone)
      subjects.emplace_back(o, own, by_itself, tokens, variant);
    else
      subjects.emplace_back(o, cases.at(variant.routing), mesh, tokens, variant);
  }
  if (bench::is_on("--check", o.check))
    check(mesh, cases, tokens, bench::dtype_from_option(o.dtype), subjects);
  std::vector<Measured> samples(subjects.size());
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    subjects[s].training.step();
    mesh.world().barrier();
    samples[s].last_seconds = mesh.world().all_max(subjects[s].training.step().seconds);
  }
  std::optional<LimitMeter> meter;
  if (mesh.world().size() == 1) meter.emplace(o, c, mesh);
  for (int i = 0; i < o.samples; ++i)
    for (std::size_t s = 0; s < subjects.size(); ++s)
      measure(o, mesh, subjects[s], meter ? &*meter : nullptr, samples[s]);
  if (mesh.world().rank() != 0) return;
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    samples[s].of_first = ratios(samples[s].seconds, samples[0].seconds);
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
  const TokenSource tokens = random_text(1, 1 << 16);
  if (mesh.world().rank() == 0) {
    std::printf("%s, %s, %d ranks\n", bench::environment_line(o.threads).c_str(), shape.text().c_str(),
                mesh.world().size());
    std::printf("%-8s %-6s %-9s %9s %-10s %12s %12s %10s %25s\n", "case", "path", "routing", "rebalance",
                "overlap", "tokens_per_s", "peak_gflops", "ratio", "of_first");
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
