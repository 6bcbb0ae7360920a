// How far is `moeloom plan` from the step that it predicts, and does it rank the meshes rightly?
//
//   for n in 1 2 4 8; do mpirun -n $n build/bench/plan_bench --json plan.json; done
//
// Every ep and path of the experts at the ranks it runs on; the rows of --json are kept and added to, and the
// summary is over all. The clock of a shared machine moves by half within seconds, so that rates are measured
// and predict the steps of the next rounds, and are measured again: an error is the median over rounds of
// predicted by the last rates over measured. Rates are of as many ranks as there are processors; the others
// sleep meanwhile. Points take turns, a step each. An untrained router's choices are not even: their counts
// at ep = 1 are the plan's; of --routing trace:FILE the file's. Two points of which neither is the faster in
// more rounds than a coin would be (sign test, 1 %: all of 8, 13 of 15) are a tie, which no prediction can
// rank.
//
// --clock wall is the slowest rank's time. --clock cpu is the processor time of all ranks over the processors
// they have: on a machine that others use too, what the step would take if its processors were its own.
#include "comm/messages.hpp"
#include "measure/step_subject.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "plan/plan_ranking.hpp"
#include "plan/predict.hpp"
#include "plan/rates/gmm_prediction.hpp"
#include "plan/rates/rate_cache.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <exception>
#include <iostream>
#include <optional>
#include <thread>

#include "support/check.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  ModelConfig model;
  Index sequences = 4, sequence_length = 256;
  Index processors = static_cast<Index>(std::thread::hardware_concurrency());
  int calibrations = 3, samples = 5;
  std::string clock = "wall", check = "on", json = "plan.json", routing = "natural";
  std::optional<Workload> workload;  // none: natural
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
  known.add_options()("calibrations", po::value(&o.calibrations)->default_value(o.calibrations),
                      "how often rates are measured")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps after each calibration")(
      "clock", po::value(&o.clock)->default_value(o.clock), "wall or cpu")(
      "check", po::value(&o.check)->default_value(o.check), "on, off: compare first steps with ep = 1 first")(
      "routing", po::value(&o.routing)->default_value(o.routing),
      "natural, balanced, random, trace:FILE@LAYER, ... (moeloom bench ep --help)")(
      "json", po::value(&o.json)->default_value(o.json), "rows are added to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.clock != "wall" && o.clock != "cpu") throw std::invalid_argument("--clock is wall or cpu");
  bench::is_on("--check", o.check);
  if (o.routing == "natural") return o;
  o.workload = workload_named(o.routing);
  const ModelConfig& m = o.model;
  if (const auto reason = why_not(*o.workload, {o.sequence_length, m.num_experts, m.num_experts_per_tok}))
    throw std::invalid_argument(*reason);
  return o;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// work(the first ranks), which measures, while the others sleep: one that waits inside MPI takes processors
/// from them.
template <typename Work>
void on_first(Index ranks, const Communicator& world, const Work& work) {
  const bool works = world.rank() < ranks;
  const Communicator part = world.split(works ? 0 : 1, world.rank());
  Messages messages(world);
  std::vector<float> word = {0};
  if (works) {
    work(part);
    part.barrier();
    for (Index sleeper = ranks; sleeper < world.size() && world.rank() == 0; ++sleeper)
      messages.send(static_cast<int>(sleeper), word);
  } else {
    messages.receive(0, word);
    while (!messages.arrived(0, 1)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  messages.finish();
}

/// The rates that a plan multiplies, measured now; the same everywhere.
MachineRates machine_rates(const Options& o, const Communicator& world) {
  Document rates;
  on_first(o.processors, world, [&](const Communicator& busy) {
    rates = document_of(measure_machine_rates(rate_case(o.model, o.sequence_length),
                                              bench::model_kernels(true, DType::kF32), busy, 3));
  });
  return machine_rates_from(Document::parse(world.all_gather_text(rates.dump()).front(), "rates"));
}

GmmPrediction predict_experts(const Options& o, const GmmFacts& facts, const Communicator& world) {
  const GmmCase wanted = gmm_case(o.model, facts), measured = calibration_case(wanted);
  GmmPrediction prediction;
  on_first(1, world, [&](const Communicator&) {
    prediction = predict(scaled(measure_gmm_rates(measured, kCalibrationSeconds), measured, wanted), 1);
  });
  world.broadcast(std::as_writable_bytes(std::span(&prediction, 1)), 0);
  return prediction;
}

TrainingCase case_of(const Options& o, const Communicator& world) {
  return {o.model, o.sequences * world.size(), o.sequence_length, 1, o.workload};
}

void train_first(StepSubject& subject) {
  for (Index job = 0; job < StepCheck::kSteps; ++job) subject.train();
}

/// Rows of each expert, by step and layer. Of a recording what `moeloom plan --routing` reads of it: the
/// whole file. Else of the steps that will be measured: choices change while a model learns, and are the same
/// on every mesh.
std::vector<std::vector<double>> rows_of_steps(const Options& o, const TokenSource& tokens) {
  if (o.workload && o.workload->recorded()) {
    std::vector<std::vector<double>> rows;
    for (const std::vector<Index>& each : o.workload->recorded()->expert_rows())
      rows.emplace_back(each.begin(), each.end());
    return rows;
  }
  const Mesh mesh(Communicator::world(),
                  MeshShape{0, 1, {"dp", "ep"}}.completed(Communicator::world().size()));
  StepSubject subject(case_of(o, mesh.world()), mesh, tokens, bench::model_kernels(true, DType::kF32));
  train_first(subject);
  std::vector<std::vector<double>> rows;
  for (int sample = 0; sample < o.calibrations * o.samples; ++sample)
    for (const std::vector<Index>& layer : subject.train().rows_per_expert)
      if (!layer.empty()) rows.emplace_back(layer.begin(), layer.end());
  return rows;
}

/// One point in training.
class Runner {
 public:
  /// check: none if there shall be none.
  Runner(const Options& o, const PredictedPoint& point, const TokenSource& tokens,
         const std::optional<StepCheck>& check)
      : options_(o),
        point_(point),
        mesh_(Communicator::world(), point.job.layout.mesh),
        subject_(case_of(o, mesh_.world()), mesh_, tokens, kernels(point.grouped)) {
    if (check)
      bench::refuse_unless_right(mesh_.shape().text(), check->check(subject_).error,
                                 StepCheck::tolerance(DType::kF32));
    else
      train_first(subject_);
  }

  /// By the rates of now.
  void predict(const std::vector<PredictedPoint>& points) {
    point_ = *std::ranges::find_if(points, [&](const PredictedPoint& p) {
      return p.job.layout.mesh.ep == point_.job.layout.mesh.ep && p.grouped == point_.grouped;
    });
  }

  void job() {
    mesh_.world().barrier();
    const double before = processor_seconds();
    const StepReport report = subject_.train();
    std::vector<double> used = {processor_seconds() - before};
    mesh_.world().all_sum(used);
    const auto busy = static_cast<double>(std::min<Index>(mesh_.world().size(), options_.processors));
    measured_.push_back(options_.clock == "cpu" ? used[0] / busy : mesh_.world().all_max(report.seconds));
    predicted_.push_back(point_.step_seconds());
    for (std::size_t p = 0; p < kPhases; ++p) {
      measured_phases_[p] += report.phase_seconds[p];
      predicted_phases_[p] += point_.seconds[p];
    }
  }

  nlohmann::ordered_json row() const {
    const Spread measured = spread_of(measured_);
    std::vector<double> errors;
    for (std::size_t i = 0; i < measured_.size(); ++i) errors.push_back(predicted_[i] / measured_[i] - 1);
    const Spread error = spread_of(errors);
    nlohmann::ordered_json row = {{"ranks", point_.job.layout.mesh.world()},
                                  {"dp", point_.job.layout.mesh.dp},
                                  {"ep", point_.job.layout.mesh.ep},
                                  {"experts", gmm_text(point_)},
                                  {"routing", options_.routing},
                                  {"busiest_load", mean_busiest_load(point_.job)},
                                  {"clock", options_.clock},
                                  {"predicted_ms", 1e3 * median(predicted_)},
                                  {"measured_ms", 1e3 * measured.median},
                                  {"p10_ms", 1e3 * measured.p10},
                                  {"p90_ms", 1e3 * measured.p90},
                                  {"rounds_seconds", measured_},
                                  {"rounds_predicted", predicted_},
                                  {"error", error.median},
                                  {"error_p10", error.p10},
                                  {"error_p90", error.p90},
                                  {"commit", bench::commit_text()}};
    const double to_ms = 1e3 / static_cast<double>(measured_.size());
    for (std::size_t p = 0; p < kPhases; ++p)
      row["phases"][std::string(name_of(static_cast<Phase>(p)))] = {
          {"predicted_ms", to_ms * predicted_phases_[p]}, {"wall_ms", to_ms * measured_phases_[p]}};
    return row;
  }

 private:
  static KernelTable kernels(bool grouped) {
    KernelTable table = bench::model_kernels(true, DType::kF32);
    if (!grouped) table.grouped_matmul = native_grouped_matmul();  // dense layers stay as train has them
    return table;
  }

  const Options& options_;
  PredictedPoint point_;
  Mesh mesh_;
  StepSubject subject_;
  std::vector<double> measured_, predicted_;             // a round each
  PhaseSeconds measured_phases_{}, predicted_phases_{};  // sums over rounds; measured on rank 0 by the wall
};

PlannedJob planned_of(const Options& o, const Communicator& world,
                      std::vector<std::vector<double>> expert_rows) {
  return {.config = o.model,
          .job = {.batch = {.sequences = o.sequences * world.size(), .length = o.sequence_length},
                  .exchange = {.expert_rows = std::move(expert_rows)},
                  .layout = {.mesh = {.dp = world.size()},
                             .ranks_per_node = world.size(),
                             .processors_per_node = o.processors}},
          .memory_per_node = 1e15};  // a GMM budget of 0: on the masters
}

nlohmann::ordered_json kept_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return nlohmann::ordered_json::array();
  nlohmann::ordered_json rows = nlohmann::ordered_json::parse(file);
  for (const auto& row : rows)
    if (!row.contains("rounds_predicted"))
      throw std::runtime_error(path + " holds rows of another version; choose another --json");
  return rows;
}

void run(const Options& o, Communicator world) {
  set_threads(1);
  nlohmann::ordered_json rows = kept_rows(o.json);
  const TokenSource tokens = random_text(1, 1 << 16);
  const PlannedJob planned = planned_of(o, world, rows_of_steps(o, tokens));
  std::optional<StepCheck> check;
  if (bench::is_on("--check", o.check)) {
    const Mesh without_ep(Communicator::world(), MeshShape{0, 1}.completed(world.size()));
    check.emplace(case_of(o, world), without_ep, tokens);
  }
  std::deque<Runner> runners;
  for (int calibration = 0; calibration < o.calibrations; ++calibration) {
    const std::vector<PredictedPoint> points = predict_points(
        planned, machine_rates(o, world),
        [&](const GmmFacts& facts, const MeshShape&) { return predict_experts(o, facts, world); },
        std::array{DispatcherKind::kAlltoall});
    if (runners.empty())
      for (const PredictedPoint& point : points) runners.emplace_back(o, point, tokens, check);
    for (Runner& runner : runners) runner.predict(points);
    for (int sample = 0; sample < o.samples; ++sample)
      for (Runner& runner : runners) runner.job();
  }
  if (world.rank() != 0) return;
  for (const Runner& runner : runners) rows.push_back(runner.row());
  std::printf("%s, %d ranks on %lld processors, clock %s\n", bench::environment_line(1).c_str(), world.size(),
              static_cast<long long>(o.processors), o.clock.c_str());
  bench::print_rows(rows);
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
