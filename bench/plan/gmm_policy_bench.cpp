// What does the policy's rule (`auto`) lose against the fastest path of the experts, beside a policy that
// times them first (`measure`)?
//
//   build/bench/gmm_policy_bench                  every point of bench/results/2026-11-22-gmm-policy-avx2.txt
//   build/bench/gmm_policy_bench --points 10 --rounds 3
//
// A point is a shape, rows per expert, source ranks and micro-batches a step. Both policies decide as a run
// would, with its budget; what all paths take is measured on moe/experts/experts.hpp over several layers, in
// turn. Regret is the time of the path that a policy chose over that of the fastest.
#include "moe/experts/experts.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "plan/rates/calibration.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <optional>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;
using Json = nlohmann::ordered_json;

struct Shape {
  const char* name;
  Index hidden, inter, experts, layers;
  std::vector<Index> sources, rows, uses;
};

// Resident experts: few where many would only take longer. Layers: what a model of that size has, or what
// fits.
std::vector<Shape> shapes() {
  return {{"default", 256, 256, 8, 4, {1}, {1, 8, 32, 128, 512}, {1, 2, 8}},
          {"default", 256, 256, 4, 4, {2}, {8, 64, 256}, {1, 8}},
          {"d512", 512, 384, 32, 2, {1}, {4, 16, 64, 128}, {1, 2, 8}},
          {"d512", 512, 384, 8, 4, {4}, {16, 128}, {1, 8}},
          {"layer", 1024, 768, 32, 1, {1}, {1, 8, 32}, {1, 2, 8}},
          {"layer", 1024, 768, 8, 1, {1}, {64, 128, 256}, {1, 2, 8}},
          {"layer", 1024, 768, 8, 1, {4}, {32, 128}, {1, 2}},
          {"qwen3-30b", 2048, 768, 16, 1, {1}, {1, 4, 16}, {1, 2, 8}},
          {"qwen3-30b", 2048, 768, 4, 1, {1}, {64, 256, 512}, {1, 2}},
          {"mixtral", 4096, 14336, 1, 1, {1}, {1, 8}, {1, 2}},
          {"mixtral/4", 4096, 3584, 1, 1, {1}, {32, 128}, {1, 8}}};
}

struct Point {
  const char* name;
  GmmCase size;
  Index layers, uses;
};

std::vector<Point> all_points() {
  std::vector<Point> points;
  for (const Shape& s : shapes())
    for (const Index sources : s.sources)
      for (const Index rows : s.rows)
        for (const Index uses : s.uses)
          points.push_back({s.name, {s.hidden, s.inter, s.experts, rows, sources}, s.layers, uses});
  return points;
}

struct Options {
  std::size_t points = 0;
  int rounds = 7, threads = 1;
  double budget = kCalibrationSeconds;
  std::string json;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("gmm_policy_bench: what the policy's choice costs");
  known.add_options()("points", po::value(&o.points)->default_value(o.points),
                      "so many, evenly taken; 0: all")(
      "rounds", po::value(&o.rounds)->default_value(o.rounds), "measured steps of each path, at least")(
      "budget", po::value(&o.budget)->default_value(o.budget), "seconds of one calibration, for measure")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "json", po::value(&o.json), "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.rounds < 1) throw std::invalid_argument("--rounds must be at least 1");
  return o;
}

std::vector<Point> chosen_points(const Options& o) {
  const std::vector<Point> all = all_points();
  if (o.points == 0 || o.points >= all.size()) return all;
  std::vector<Point> some;
  for (std::size_t i = 0; i < o.points; ++i) some.push_back(all[i * all.size() / o.points]);
  return some;
}

Matrix normal(Index rows, Index cols, double scale) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(1, stream_of("gmm_policy_bench"));
  std::vector<float>
      draws;  // few, and many copies: values do not matter to the clock unless they are denormal
  for (std::uint64_t i = 0; i < 4099; ++i) draws.push_back(static_cast<float>(scale * random.normal(i)));
  for (Index i = 0; i < rows * cols; ++i)
    m.view().data[i] = draws[static_cast<std::size_t>(i) % draws.size()];
  return m;
}

/// One layer's weights, and what its forward leaves for its backward.
struct Layer {
  explicit Layer(const GmmCase& c)
      : gate_up(normal(c.experts * 2 * c.inter, c.hidden, 0.02)),
        d_gate_up(gate_up.rows(), gate_up.cols()),
        down(normal(c.experts * c.hidden, c.inter, 0.02)),
        d_down(down.rows(), down.cols()) {
    saved.rows = normal(c.experts * c.rows_per_expert, c.hidden, 1);
    saved.weights.assign(static_cast<std::size_t>(saved.rows.rows()), 0.5f);
  }
  ExpertShard shard(Index experts) { return {experts, gate_up, down, d_gate_up, d_down}; }

  const PackedExperts& faces(const KernelTable& kernels) const {
    return kernels.grouped_matmul.uses_packed ? packed : none;
  }

  Matrix gate_up, d_gate_up, down, d_down;
  PackedExperts packed, none;
  ExpertActivations saved;
};

/// A model's experts in training; all paths share masters and gradients.
class Subject {
 public:
  explicit Subject(const Point& point)
      : point_(point),
        counts_(even_rows(point.size)),
        d_rows_(normal(point.size.experts * point.size.rows_per_expert, point.size.hidden, 1)),
        others_(Index{16} << 10, 1024) {
    for (Index i = 0; i < point.layers; ++i) layers_.emplace_back(point.size);
  }

  /// Seconds of one layer and micro-batch.
  double step(const KernelTable& kernels) {
    fill(others_, 1);  // the optimizer and the dense layers have been in the caches
    ++version_;
    const GroupedRows rows{counts_, point_.size.sources};
    const double start = rate_clock();
    for (Index use = 0; use < point_.uses; ++use) {
      for (Layer& layer : layers_) {
        ExpertShard shard = layer.shard(point_.size.experts);
        if (kernels.grouped_matmul.uses_packed)  // the others would give the memory back
          layer.packed.refresh(kernels.grouped_matmul, shard, version_);
        experts_forward({kernels, shard, layer.faces(kernels), rows, layer.saved, workspace_, clock_});
      }
      for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
        experts_backward({kernels, layer->shard(point_.size.experts), layer->faces(kernels), rows,
                          layer->saved, workspace_, clock_},
                         d_rows_, use == 0 ? Write::kReplace : Write::kAdd);
    }
    return (rate_clock() - start) / static_cast<double>(point_.layers * point_.uses);
  }

 private:
  Point point_;
  std::vector<Index> counts_;
  std::deque<Layer> layers_;
  Matrix d_rows_, others_;
  ExpertWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
};

constexpr double kShortestPoint = 1.0;  // seconds: small products need more rounds to be seen

enum Path { kLoop, kGmm, kPacked };
constexpr std::array kPaths = {"loop", "gmm", "packed"};

KernelTable kernels_of(Path path) {
  KernelTable kernels;
  kernels.swiglu = fused_swiglu();
  if (path != kLoop) kernels.grouped_matmul = packed_grouped_matmul();
  kernels.grouped_matmul.uses_packed = path == kPacked;
  return kernels;
}

struct Measured {
  std::array<double, 3> seconds{};    // medians
  std::array<double, 3> over_loop{};  // medians of the rounds' ratios
  Path fastest() const {
    return static_cast<Path>(std::min_element(over_loop.begin(), over_loop.end()) - over_loop.begin());
  }
};

Measured measure(const Point& point, int rounds) {
  Subject subject(point);
  for (const Path path : {kLoop, kGmm, kPacked}) subject.step(kernels_of(path));
  std::array<std::vector<double>, 3> seconds, ratios;
  double spent = 0;
  for (int round = 0; round < rounds || (spent < kShortestPoint && round < 8 * rounds); ++round) {
    std::array<double, 3> now{};
    // Whoever goes later finds its rows warm: they take turns at it.
    for (int i = 0; i < 3; ++i) {
      const auto path = static_cast<Path>((round + i) % 3);
      now[path] = subject.step(kernels_of(path));
      spent += now[path] * static_cast<double>(point.layers * point.uses);
    }
    for (const Path path : {kLoop, kGmm, kPacked}) {
      seconds[path].push_back(now[path]);
      ratios[path].push_back(now[path] / now[kLoop]);
    }
  }
  Measured measured;
  for (const Path path : {kLoop, kGmm, kPacked}) {
    measured.seconds[path] = median(seconds[path]);
    measured.over_loop[path] = median(ratios[path]);
  }
  return measured;
}

GmmRates rates_of(const GmmCase& wanted, double budget) {
  const GmmCase measured = calibration_case(wanted);
  return scaled(measure_gmm_rates(measured, budget), measured, wanted);
}

constexpr Index kBudget = Index{4} << 30;  // the program's --gmm-budget

Path decide(const Point& point) {
  GmmFacts facts;
  facts.expert_bytes = 3 * point.size.hidden * point.size.inter * static_cast<Index>(sizeof(float));
  facts.resident_bytes = point.size.experts * facts.expert_bytes;
  facts.avx512 = cpu_has_avx512();
  facts.packed_bytes = 2 * facts.resident_bytes;
  facts.budget_bytes = kBudget;
  facts.rows_per_expert = static_cast<double>(point.size.rows_per_expert);
  facts.uses_per_packing = static_cast<double>(point.uses);
  const GmmDecision decision = decide_gmm(GmmRequest::kAuto, facts);
  return !decision.apply ? kLoop : decision.packs ? kPacked : kGmm;
}

Path fastest(const GmmPrediction& predicted) {
  const Path grouped = predicted.packed_seconds < predicted.gmm_seconds ? kPacked : kGmm;
  const double seconds = std::min(predicted.packed_seconds, predicted.gmm_seconds);
  return seconds < predicted.loop_seconds ? grouped : kLoop;
}

Json row_of(const Options& o, const Point& point, const GmmPrediction& predicted, const Measured& measured) {
  const Path by_rule = decide(point), by_clock = fastest(predicted);
  const Path best = measured.fastest();
  const auto regret = [&](Path chosen) {
    return 100 * (measured.over_loop[chosen] / measured.over_loop[best] - 1);
  };
  return {{"shape", point.name},
          {"hidden", point.size.hidden},
          {"inter", point.size.inter},
          {"experts", point.size.experts},
          {"layers", point.layers},
          {"sources", point.size.sources},
          {"rows_per_expert", point.size.rows_per_expert},
          {"uses", point.uses},
          {"threads", o.threads},
          {"predicted_loop_ms", 1e3 * predicted.loop_seconds},
          {"predicted_gmm_over_loop", predicted.gmm_seconds / predicted.loop_seconds},
          {"predicted_packed_over_loop", predicted.packed_seconds / predicted.loop_seconds},
          {"loop_ms", 1e3 * measured.seconds[kLoop]},
          {"gmm_over_loop", measured.over_loop[kGmm]},
          {"packed_over_loop", measured.over_loop[kPacked]},
          {"fastest", kPaths[best]},
          {"auto", kPaths[by_rule]},
          {"auto_regret_percent", regret(by_rule)},
          {"measure", kPaths[by_clock]},
          {"measure_regret_percent", regret(by_clock)},
          {"commit", bench::commit_text()}};
}

void print(const Json& r) {
  const auto number = [&r](const char* key) { return r.at(key).get<double>(); };
  std::printf(
      "%-10s %5.0f %6.0f %3.0f %3.0f %5.0f %4.0f | %9.3f %6.3f %6.3f | %9.3f %6.3f %6.3f | "
      "%-6s | %-6s %6.1f | %-7s %6.1f\n",
      r.at("shape").get<std::string>().c_str(), number("hidden"), number("inter"), number("experts"),
      number("sources"), number("rows_per_expert"), number("uses"), number("predicted_loop_ms"),
      number("predicted_gmm_over_loop"), number("predicted_packed_over_loop"), number("loop_ms"),
      number("gmm_over_loop"), number("packed_over_loop"), r.at("fastest").get<std::string>().c_str(),
      r.at("auto").get<std::string>().c_str(), number("auto_regret_percent"),
      r.at("measure").get<std::string>().c_str(), number("measure_regret_percent"));
  std::fflush(stdout);
}

void print_summary(const Json& rows, const std::string& policy) {
  std::size_t hits = 0;
  double sum = 0, worst = 0;
  for (const Json& row : rows) {
    const double regret = row.at(policy + "_regret_percent").get<double>();
    hits += row.at(policy) == row.at("fastest") ? 1 : 0;
    sum += regret;
    worst = std::max(worst, regret);
  }
  std::printf(
      "%-7s picked the fastest of three paths at %zu of %zu points; regret: mean %.2f %%, worst %.1f %%\n",
      policy.c_str(), hits, rows.size(), sum / static_cast<double>(std::max<std::size_t>(rows.size(), 1)),
      worst);
}

void run(const Options& o) {
  set_threads(o.threads);
  std::printf("%s, rounds %d; ms of one layer and micro-batch\n", bench::environment_line(o.threads).c_str(),
              o.rounds);
  std::printf(
      "predicted, then measured: the loop, and grouped on masters and on packed faces as a share of it\n");
  std::printf("%-10s %5s %6s %3s %3s %5s %4s | %9s %6s %6s | %9s %6s %6s | %-6s | %-6s %6s | %-7s %6s\n",
              "shape", "D", "F", "E", "src", "rows", "uses", "loop ms", "gmm", "packed", "loop ms", "gmm",
              "packed", "best", "auto", "regret", "measure", "regret");
  Json rows = Json::array();
  std::optional<GmmCase> known;
  GmmRates rates;
  for (const Point& point : chosen_points(o)) {
    if (known != point.size) rates = rates_of(point.size, o.budget);
    known = point.size;
    rows.push_back(
        row_of(o, point, predict(rates, static_cast<double>(point.uses)), measure(point, o.rounds)));
    print(rows.back());
  }
  for (const char* policy : {"auto", "measure"}) print_summary(rows, policy);
  bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("gmm_policy_bench", argc, argv, parse, run);
}
