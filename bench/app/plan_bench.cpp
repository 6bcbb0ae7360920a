// How far is `moeloom plan` from the step that it predicts, and does it rank the meshes rightly?
//
//   for n in 1 2 4 8; do mpirun -n $n build/bench/plan_bench --json plan.json; done
//
// Every ep and path of the experts at the ranks it runs on; the rows of --json are kept and added to, and the
// summary is over all. Rates are measured where no more ranks than processors run, and kept beside the rows
// (FILE.rates), so more ranks are predicted from those: start with few. An untrained router's choices are not
// even: their counts at ep = 1 are the plan's. Points take turns, a step each, so that what else the machine
// does meets them all. Two whose medians are nearer than half of p10 to p90 of the noisier one, or of which
// neither is the faster in more rounds than a coin would be (sign test, 5 %: all of 6, 8 of 9), are a tie,
// which no prediction can rank.
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
#include <deque>
#include <exception>
#include <iostream>
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
  bench::add_sizes(known, {{"hidden", &o.model.hidden_size, "hidden size"},
                           {"inter", &o.model.moe_intermediate_size, "intermediate size of an expert"},
                           {"layers", &o.model.num_hidden_layers, "decoder layers"},
                           {"experts", &o.model.num_experts, "experts of a layer"},
                           {"top-k", &o.model.num_experts_per_tok, "experts a token"},
                           {"sequences", &o.sequences, "sequences a rank"},
                           {"seq-len", &o.sequence_length, "tokens of a sequence"},
                           {"processors", &o.processors, "of this machine"}});
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

/// Rows of each expert, by step and layer, in the steps that will be measured: choices change while a model
/// learns, and are the same on every mesh.
std::vector<std::vector<double>> rows_of_steps(const Options& o, const TokenSource& tokens) {
  const Mesh mesh(Communicator::world(),
                  MeshShape{0, 1, {"dp", "ep"}}.completed(Communicator::world().size()));
  bench::Subject subject(o.model, {o.sequences, o.sequence_length}, mesh, tokens,
                         bench::kernels_of(true, DType::kF32));
  subject.step();
  std::vector<std::vector<double>> rows;
  for (int sample = 0; sample < o.samples; ++sample)
    for (const std::vector<Index>& layer : subject.step().rows_per_expert)
      if (!layer.empty()) rows.emplace_back(layer.begin(), layer.end());
  return rows;
}

/// One point in training.
class Runner {
 public:
  Runner(const Options& o, const MeshShape& shape, const TokenSource& tokens, bool grouped)
      : options_(o),
        mesh_(Communicator::world(), shape),
        subject_(o.model, {o.sequences, o.sequence_length}, mesh_, tokens, kernels(grouped)) {
    subject_.step();
  }

  void step() {
    mesh_.world().barrier();
    const double before = processor_seconds();
    const StepReport report = subject_.step();
    std::vector<double> used = {processor_seconds() - before};
    mesh_.world().all_sum(used);
    const auto busy = static_cast<double>(std::min<Index>(mesh_.world().size(), options_.processors));
    seconds_.push_back(options_.clock == "cpu" ? used[0] / busy : mesh_.world().all_max(report.seconds));
    for (std::size_t p = 0; p < kPhases; ++p) phases_[p] += report.phase_seconds[p] / options_.samples;
  }

  const std::vector<double>& seconds() const { return seconds_; }
  /// Means of rank 0, by the wall.
  const PhaseSeconds& phases() const { return phases_; }

 private:
  static KernelTable kernels(bool grouped) {
    KernelTable table = bench::kernels_of(true, DType::kF32);
    if (!grouped) table.grouped_matmul = native_grouped_matmul();  // dense layers stay as train has them
    return table;
  }

  const Options& options_;
  Mesh mesh_;
  bench::Subject subject_;
  std::vector<double> seconds_;
  PhaseSeconds phases_{};
};

PlanRequest request_of(const Options& o, const Communicator& world,
                       std::vector<std::vector<double>> expert_rows) {
  return {.config = o.model,
          .ranks = world.size(),
          .ranks_per_node = world.size(),
          .processors_per_node = o.processors,
          .memory_per_node = 1e15,
          .threads = 1,
          .tokens = o.sequences * o.sequence_length,
          .sequence_length = o.sequence_length,
          .gmm_budget_bytes = 0,  // on the masters
          .expert_rows = std::move(expert_rows)};
}

nlohmann::ordered_json row_of(const Options& o, const PlanPoint& point, const Runner& runner) {
  const bench::Percentiles measured = bench::percentiles(runner.seconds());
  nlohmann::ordered_json row = {{"ranks", point.step.mesh.world()},
                                {"dp", point.step.mesh.dp},
                                {"ep", point.step.mesh.ep},
                                {"experts", gmm_text(point)},
                                {"busiest_load", mean_busiest_load(point.step)},
                                {"clock", o.clock},
                                {"predicted_ms", 1e3 * point.step_seconds()},
                                {"measured_ms", 1e3 * measured.median},
                                {"p10_ms", 1e3 * measured.p10},
                                {"p90_ms", 1e3 * measured.p90},
                                {"rounds_seconds", runner.seconds()},
                                {"error", point.step_seconds() / measured.median - 1},
                                {"commit", bench::commit_text()}};
  for (std::size_t p = 0; p < kPhases; ++p)
    row["phases"][std::string(name_of(static_cast<Phase>(p)))] = {{"predicted_ms", 1e3 * point.seconds[p]},
                                                                  {"wall_ms", 1e3 * runner.phases()[p]}};
  return row;
}

nlohmann::ordered_json kept_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return nlohmann::ordered_json::array();
  nlohmann::ordered_json rows = nlohmann::ordered_json::parse(file);
  for (const auto& row : rows)
    if (!row.contains("rounds_seconds"))
      throw std::runtime_error(path + " holds rows of another version; choose another --json");
  return rows;
}

/// Of a fair coin: falling on one side, whichever, at least so often.
double chance_of(int on_one_side, int throws) {
  double chance = 0, ways = std::exp2(1 - throws);  // both sides' C(n, k) / 2^n, from k = n on
  for (int k = throws; k >= std::max(on_one_side, throws - on_one_side); --k) {
    chance += ways;
    ways *= static_cast<double>(k) / (throws - k + 1);
  }
  return chance;
}

/// -1, 1: the first or the second of two points at the same ranks is the faster; 0: neither can be said to
/// be.
int faster_of(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second) {
  constexpr double kMostChance = 0.05;
  const auto a = first["rounds_seconds"].get<std::vector<double>>();
  const auto b = second["rounds_seconds"].get<std::vector<double>>();
  const int rounds = static_cast<int>(std::min(a.size(), b.size()));
  int won = 0;
  for (int i = 0; i < rounds; ++i) won += a[at(i)] < b[at(i)] ? 1 : 0;
  const auto of = [](const nlohmann::ordered_json& row, const char* key) { return row[key].get<double>(); };
  const auto spread = [&](const nlohmann::ordered_json& row) {
    return of(row, "p90_ms") - of(row, "p10_ms");
  };
  const double apart = of(second, "measured_ms") - of(first, "measured_ms");
  if (chance_of(won, rounds) > kMostChance || std::abs(apart) < std::max(spread(first), spread(second)) / 2)
    return 0;
  return apart > 0 ? -1 : 1;
}

/// Of the pairs at the same ranks.
struct Ranking {
  int right = 0, wrong = 0, ties = 0;
};
Ranking ranking_of(const nlohmann::ordered_json& rows) {
  Ranking ranking;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (rows[i]["ranks"] != rows[j]["ranks"]) continue;
      const bool predicted = rows[i]["predicted_ms"].get<double>() < rows[j]["predicted_ms"].get<double>();
      const int faster = faster_of(rows[i], rows[j]);
      ++(faster == 0 ? ranking.ties : predicted == (faster < 0) ? ranking.right : ranking.wrong);
    }
  return ranking;
}

void print(const nlohmann::ordered_json& rows) {
  std::printf("%5s %4s %4s %-8s %8s %12s %12s %17s %7s\n", "ranks", "dp", "ep", "experts", "busiest",
              "predicted ms", "measured ms", "p10 .. p90", "error");
  std::vector<double> errors;
  for (const auto& row : rows) {
    const auto of = [&](const char* key) { return row[key].get<double>(); };
    errors.push_back(std::abs(of("error")));
    std::printf("%5.0f %4.0f %4.0f %-8s %7.2fx %12.1f %12.1f %8.1f %8.1f %+6.0f%%\n", of("ranks"), of("dp"),
                of("ep"), row["experts"].get<std::string>().c_str(), of("busiest_load"), of("predicted_ms"),
                of("measured_ms"), of("p10_ms"), of("p90_ms"), 100 * of("error"));
  }
  const Ranking ranking = ranking_of(rows);
  std::printf(
      "median error %.0f %%; of the pairs at the same ranks %d are ranked right, %d wrong, %d are ties\n",
      100 * bench::percentiles(errors).median, ranking.right, ranking.wrong, ranking.ties);
  constexpr std::size_t kFewestRounds = 6;  // of which all on one side are rarer than kMostChance
  if (rows.back()["rounds_seconds"].size() < kFewestRounds)
    std::printf("fewer than %zu samples tell no pair apart\n", kFewestRounds);
}

void run(const Options& o, Communicator world) {
  set_threads(1);
  const MachineRates machine = machine_rates(o, world);
  const bench::RandomText text(world.rank());
  const TokenSource tokens(text.path(), TokenFormat::kText);
  const std::vector<PlanPoint> points =
      plan_points(request_of(o, world, rows_of_steps(o, tokens)), machine, {ExchangeWay::kAlltoall},
                  [&](const GmmFacts& facts, const MeshShape&) { return predict_experts(o, facts, world); });
  std::deque<Runner> runners;
  for (const PlanPoint& point : points) runners.emplace_back(o, point.step.mesh, tokens, point.grouped);
  for (int sample = 0; sample < o.samples; ++sample)
    for (Runner& runner : runners) runner.step();
  if (world.rank() != 0) return;
  nlohmann::ordered_json rows = kept_rows(o.json);
  for (std::size_t i = 0; i < points.size(); ++i) rows.push_back(row_of(o, points[i], runners[i]));
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
