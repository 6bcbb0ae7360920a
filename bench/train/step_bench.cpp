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

#include <cstdio>
#include <deque>
#include <exception>
#include <iostream>
#include <map>
#include <optional>

#include "step_limit.hpp"
#include "step_options.hpp"
#include "step_row.hpp"
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
using bench::Case, bench::Measured, bench::Options, bench::Variant;

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
                 settings_of(o, of, mesh, variant), bench::travel_with(variant.overlap)) {}
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

/// One model, with one routing after the other.
std::map<std::string, TrainingCase> routed_cases(const Options& o, const Case& c, const Mesh& mesh) {
  std::map<std::string, TrainingCase> cases;
  for (const std::string& name : bench::words(o.routing))
    cases[name] = {c.model, c.sequences * mesh.world().size(), c.sequence_length, 1,
                   bench::routing_named(name)};
  return cases;
}

void check(const Mesh& mesh, const std::map<std::string, TrainingCase>& cases, const TokenSource& tokens,
           DType dtype, std::deque<Subject>& subjects) {
  const Mesh without_ep(Communicator::world(), MeshShape{0, 1}.completed(mesh.world().size()));
  for (const auto& [name, each] : cases) {
    const StepCheck check(each, without_ep, tokens);
    for (Subject& subject : subjects)
      if (subject.variant.routing == name && !subject.variant.alone)
        bench::refuse_unless_right(subject.variant.path + ", " + name, check.check(subject.training).error,
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
      measure(o, mesh, subjects[s], meter && subjects[s].variant.path == "gmm" ? &*meter : nullptr,
              samples[s]);
  if (mesh.world().rank() != 0) return;
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    samples[s].of_first = ratios(samples[s].seconds, samples[0].seconds);
    rows.push_back(bench::row_of(o, c, mesh, subjects[s].variant, samples[s]));
    bench::print(rows.back());
  }
}

void run(const Options& o, Communicator world) {
  MeshShape shape;
  shape.ep = o.ep;
  shape.dp = o.ep > 0 ? world.size() / o.ep : 0;
  std::vector<std::string> violations;
  for (const Case& c : bench::cases_of(o)) {
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
  for (const Case& c : bench::cases_of(o)) run_case(o, c, mesh, tokens, rows);
  if (mesh.world().rank() == 0) bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = bench::parse(argc, argv)) run(*o, Communicator::world());
} catch (const std::exception& error) {
  std::cerr << "step_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
