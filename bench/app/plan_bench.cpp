// How far is `moeloom plan` from the step that it predicts, and does it rank the meshes rightly?
//
//   for n in 1 2 4 8; do mpirun -n $n build/bench/plan_bench --json plan.json; done
//
// Every ep and path of the experts at the ranks it runs on; the rows of --json are kept and added to, and the
// summary is over all. Rates are measured where no more ranks than processors run, and kept beside the rows
// (FILE.rates), so more ranks are predicted from those: start with few.
//
// --clock wall is the slowest rank's time. --clock cpu is the processor time of all ranks over the processors
// they have: on a machine that others use too, what the step would take if its processors were its own.
#include "moeloom/app/rate_cache.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/kernels/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <thread>

#include "kernel_plan.hpp"
#include "step_plan.hpp"
#include "support/measure.hpp"
#include "support/options.hpp"
#include "support/training.hpp"

namespace {

using namespace moeloom;

struct Options {
  ModelConfig model;
  Index sequences = 4, sequence_length = 256;
  Index processors = static_cast<Index>(std::thread::hardware_concurrency());
  int samples = 5;
  std::string clock = "wall", json = "plan.json";
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("plan_bench: predicted against measured steps of every mesh");
  const auto size = [&known](const char* name, Index* target, const char* text) {
    known.add_options()(name, po::value(target)->default_value(*target), text);
  };
  size("hidden", &o.model.hidden_size, "hidden size");
  size("inter", &o.model.moe_intermediate_size, "intermediate size of an expert");
  size("layers", &o.model.num_hidden_layers, "decoder layers");
  size("experts", &o.model.num_experts, "experts of a layer");
  size("top-k", &o.model.num_experts_per_tok, "experts a token");
  size("sequences", &o.sequences, "sequences a rank");
  size("seq-len", &o.sequence_length, "tokens of a sequence");
  size("processors", &o.processors, "of this machine");
  known.add_options()("samples", po::value(&o.samples)->default_value(o.samples), "measured steps")(
      "clock", po::value(&o.clock)->default_value(o.clock), "wall or cpu")(
      "json", po::value(&o.json)->default_value(o.json), "rows are added to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.clock != "wall" && o.clock != "cpu") throw std::invalid_argument("--clock is wall or cpu");
  return o;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::filesystem::path rates_file(const Options& o) {
  return std::filesystem::absolute(o.json + ".rates");
}

/// From the file, or measured now on all ranks; the same everywhere.
MachineRates machine_rates(const Options& o, const Communicator& world) {
  const std::filesystem::path file = rates_file(o);
  const std::string machine = rate_machine();
  const RateCase sizes = rate_case(o.model, o.sequence_length);
  const Index most = std::min<Index>(world.size(), o.processors);
  const auto kept = kept_machine_rates(file, machine, sizes, most).rates;
  const bool fits = most == world.size();
  // Every rank reads the same file; they agree on whether it will do.
  if (world.all_max(kept && (!fits || kept->ranks == most) ? 0.0 : 1.0) == 0) return *kept;
  const MachineRates rates = measure_machine_rates(sizes, bench::kernels_of(true, DType::kF32), world, 3);
  if (world.rank() == 0 && fits) keep_machine_rates(file, machine, sizes, rates);
  return rates;
}

/// Rank 0's, everywhere.
GmmPrediction predict_experts(const Options& o, const GmmFacts& facts, const Communicator& world) {
  const GmmCase wanted = gmm_case(o.model, facts), measured = calibration_case(wanted);
  std::array<double, 3> seconds{};
  if (world.rank() == 0) {
    const RateAnswer answer =
        cached_rates(o.json + ".rates", rate_machine(), measured, false,
                     [](const GmmCase& c) { return measure_gmm_rates(c, kCalibrationSeconds); });
    const GmmPrediction p = predict(scaled(answer.rates, measured, wanted), 1);
    seconds = {p.loop_seconds, p.gmm_seconds, p.packed_seconds};
  }
  world.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
  return {seconds[0], seconds[1], seconds[2]};
}

struct Measured {
  double seconds = 0;
  PhaseSeconds phases{};  // means over ranks, by the wall
};

Measured measure(const Options& o, const Mesh& mesh, const TokenSource& tokens, bool grouped) {
  KernelTable kernels = bench::kernels_of(true, DType::kF32);
  if (!grouped) kernels.grouped_matmul = native_grouped_matmul();  // dense layers stay as train has them
  bench::Subject subject(o.model, {o.sequences, o.sequence_length}, mesh, tokens, kernels);
  subject.step();
  std::vector<double> seconds;
  Measured measured;
  for (int i = 0; i < o.samples; ++i) {
    mesh.world().barrier();
    const double before = processor_seconds();
    const StepReport report = subject.step();
    std::vector<double> used = {processor_seconds() - before};
    mesh.world().all_sum(used);
    const auto busy = static_cast<double>(std::min<Index>(mesh.world().size(), o.processors));
    seconds.push_back(o.clock == "cpu" ? used[0] / busy : mesh.world().all_max(report.seconds));
    for (std::size_t p = 0; p < kPhases; ++p) measured.phases[p] += report.phase_seconds[p] / o.samples;
  }
  measured.seconds = bench::percentiles(seconds).median;
  return measured;
}

PlanRequest request_of(const Options& o, const Communicator& world) {
  return {.config = o.model,
          .ranks = world.size(),
          .ranks_per_node = world.size(),
          .processors_per_node = o.processors,
          .memory_per_node = 1e15,
          .threads = 1,
          .tokens = o.sequences * o.sequence_length,
          .sequence_length = o.sequence_length,
          .gmm_budget_bytes = 0};  // on the masters
}

nlohmann::ordered_json row_of(const Options& o, const PlanPoint& point, const Measured& measured) {
  nlohmann::ordered_json row = {{"ranks", point.step.mesh.world()},
                                {"dp", point.step.mesh.dp},
                                {"ep", point.step.mesh.ep},
                                {"experts", gmm_text(point)},
                                {"clock", o.clock},
                                {"predicted_ms", 1e3 * point.step_seconds()},
                                {"measured_ms", 1e3 * measured.seconds},
                                {"error", point.step_seconds() / measured.seconds - 1},
                                {"commit", bench::commit_text()}};
  for (std::size_t p = 0; p < kPhases; ++p)
    row["phases"][std::string(name_of(static_cast<Phase>(p)))] = {{"predicted_ms", 1e3 * point.seconds[p]},
                                                                  {"wall_ms", 1e3 * measured.phases[p]}};
  return row;
}

nlohmann::ordered_json kept_rows(const std::string& path) {
  std::ifstream file(path);
  return file ? nlohmann::ordered_json::parse(file) : nlohmann::ordered_json::array();
}

/// Pairs of points of one rank count that the prediction puts in the order of the measurement; those that
/// were measured within a tenth of each other have none.
std::pair<int, int> ranked_pairs(const nlohmann::ordered_json& rows) {
  int right = 0, all = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const auto of = [&](std::size_t row, const char* key) { return rows[row][key].get<double>(); };
      if (of(i, "ranks") != of(j, "ranks")) continue;
      const double measured = std::log(of(i, "measured_ms") / of(j, "measured_ms"));
      const double predicted = std::log(of(i, "predicted_ms") / of(j, "predicted_ms"));
      if (std::abs(measured) < std::log(1.1)) continue;
      ++all;
      right += measured * predicted > 0 ? 1 : 0;
    }
  return {right, all};
}

void print(const nlohmann::ordered_json& rows) {
  std::printf("%5s %4s %4s %-8s %12s %12s %7s\n", "ranks", "dp", "ep", "experts", "predicted ms",
              "measured ms", "error");
  std::vector<double> errors;
  for (const auto& row : rows) {
    errors.push_back(std::abs(row["error"].get<double>()));
    std::printf("%5d %4d %4d %-8s %12.1f %12.1f %+6.0f%%\n", row["ranks"].get<int>(), row["dp"].get<int>(),
                row["ep"].get<int>(), row["experts"].get<std::string>().c_str(),
                row["predicted_ms"].get<double>(), row["measured_ms"].get<double>(),
                100 * row["error"].get<double>());
  }
  const auto [right, all] = ranked_pairs(rows);
  std::printf("median error %.0f %%; of %d pairs at the same ranks that differ by a tenth, %d ranked right\n",
              100 * bench::percentiles(errors).median, all, right);
}

void run(const Options& o, Communicator world) {
  set_threads(1);
  const MachineRates machine = machine_rates(o, world);
  const std::vector<PlanPoint> points =
      plan_points(request_of(o, world), machine, {ExchangeWay::kAlltoall},
                  [&](const GmmFacts& facts, const MeshShape&) { return predict_experts(o, facts, world); });
  const bench::RandomText text(world.rank());
  const TokenSource tokens(text.path(), TokenFormat::kText);
  const bool speaks = world.rank() == 0;
  nlohmann::ordered_json rows = kept_rows(o.json);
  for (const PlanPoint& point : points) {
    const Mesh mesh(Communicator::world(), point.step.mesh);
    const Measured measured = measure(o, mesh, tokens, point.grouped);
    rows.push_back(row_of(o, point, measured));
  }
  if (!speaks) return;
  std::printf("%s, %d ranks on %lld processors, clock %s\n", bench::environment_line(1).c_str(), world.size(),
              static_cast<long long>(o.processors), o.clock.c_str());
  print(rows);
  bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o, Communicator::world());
} catch (const std::exception& error) {
  std::cerr << "plan_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
