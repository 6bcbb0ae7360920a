#include "record/trace.hpp"

#include "moeloom/base/errors.hpp"

#include <csignal>
#include <cstdint>
#include <future>
#include <map>

#include "program/program_testing.hpp"
#include <nlohmann/json.hpp>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::count_of;
using testing::Outcome;
using testing::ranks_with;
using testing::shell;
using testing::soon;

constexpr double kNanosecond = 1e-3;  // in microseconds, as a trace counts

/// A drawn span, in microseconds.
struct Drawn {
  std::string name;
  double begin = 0;
  double end = 0;
};

/// The lane of a rank by category, in the order of the file.
using Lane = std::map<std::string, std::vector<Drawn>>;

nlohmann::json events_of(const fs::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file).at("traceEvents");
}

std::map<Index, Lane> lanes_of(const fs::path& path) {
  std::map<Index, Lane> lanes;
  for (const nlohmann::json& event : events_of(path)) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts").get<double>();
    lanes[event.at("tid").get<Index>()][event.at("cat").get<std::string>()].push_back(
        {event.at("name").get<std::string>(), begin, begin + event.at("dur").get<double>()});
  }
  return lanes;
}

void expect_one_after_another(const std::vector<Drawn>& spans) {
  for (std::size_t i = 1; i < spans.size(); ++i)
    EXPECT_LE(spans[i - 1].end, spans[i].begin + kNanosecond) << spans[i - 1].name << ", " << spans[i].name;
}

void expect_each_within_one(const std::vector<Drawn>& inner, const std::vector<Drawn>& outer) {
  for (const Drawn& span : inner)
    EXPECT_EQ(std::ranges::count_if(outer,
                                    [&](const Drawn& around) {
                                      return around.begin <= span.begin + kNanosecond &&
                                             span.end <= around.end + kNanosecond;
                                    }),
              1)
        << span.name << " at " << span.begin;
}

std::vector<Drawn> named(const std::vector<Drawn>& spans, const std::string& name) {
  std::vector<Drawn> found;
  std::ranges::copy_if(spans, std::back_inserter(found), [&](const Drawn& s) { return s.name == name; });
  return found;
}

double seconds_of(const std::vector<Drawn>& spans) {
  double microseconds = 0;
  for (const Drawn& span : spans) microseconds += span.end - span.begin;
  return microseconds / 1e6;
}

class TraceOption : public testing::ProgramTest {};

TEST_F(TraceOption, DrawsALaneARankWhosePhasesAreThoseOfTheMetrics) {
  const Outcome run = shell(train(2, "--ep 2 --steps 6 --trace-steps 2:5 --trace " + path("trace.json")));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count_of(run.output, "trace=" + path("trace.json")), 1u) << run.output;
  EXPECT_FALSE(fs::exists(path("trace.json.partial")));
  const std::map<Index, Lane> lanes = lanes_of(path("trace.json"));
  ASSERT_EQ(lanes.size(), 2u);
  std::map<std::string, double> by_phase;
  for (auto& [rank, lane] : lanes) {
    const auto& steps = lane.at("step");
    ASSERT_EQ(steps.size(), 3u);
    for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].name, "step " + std::to_string(i + 2));
    for (const auto& [category, spans] : lane) expect_one_after_another(spans);
    expect_each_within_one(lane.at("phase"), steps);
    expect_each_within_one(lane.at("product"), named(lane.at("phase"), "experts"));
    for (const char* product : {"gate_up", "down", "down input_grad", "down weight_grad",
                                "gate_up input_grad", "gate_up weight_grad"})
      EXPECT_EQ(named(lane.at("product"), product).size(), 2u * 3u) << "two layers, three steps: " << product;
    for (const Drawn& phase : lane.at("phase")) by_phase[phase.name] += seconds_of({phase}) / 2;
  }
  const std::vector<StepMetrics> metrics = read_metrics(fs::path(path("run")) / "metrics.jsonl");
  for (const char* phase :
       {"router", "plan", "dispatch", "experts", "combine", "dense", "attention", "reduce", "optimizer"}) {
    double measured = 0;
    for (std::size_t step = 2; step < 5; ++step) measured += metrics[step].seconds_by_phase.at(phase);
    EXPECT_NEAR(by_phase[phase], measured, 1e-6) << phase << ": a few spans, each rounded to a nanosecond";
  }
}

TEST_F(TraceOption, RanksOfANodeStandRightToEachOther) {
  ASSERT_EQ(shell(train(4, "--ep 4 --steps 3 --trace " + path("trace.json"))).exit_code, 0);
  const std::map<Index, Lane> lanes = lanes_of(path("trace.json"));
  ASSERT_EQ(lanes.size(), 4u);
  // No rank leaves a collective before the last has come to it, and each phase of these holds one.
  for (const char* phase : {"reduce", "optimizer"}) {
    double last_begin = 0;
    double first_end = 1e18;
    for (const auto& [rank, lane] : lanes) {
      const Drawn first = named(lane.at("phase"), phase).front();
      last_begin = std::max(last_begin, first.begin);
      first_end = std::min(first_end, first.end);
    }
    EXPECT_LT(last_begin, first_end) << phase;
  }
}

TEST_F(TraceOption, ByDefaultTheFirstStepIsLeftOutAndTheFileMayLieInTheRunsFolder) {
  ASSERT_EQ(shell(train(1, "--steps 14 --trace " + path("run/trace.json"))).exit_code, 0);
  const auto steps = lanes_of(path("run/trace.json")).at(0).at("step");
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps.front().name, "step 1");
}

TEST_F(TraceOption, ARunThatIsStoppedWritesWhatItHas) {
  const std::string command = train(2, "--steps 1000000 --trace-steps 2:900000 --trace " +
                                           path("trace.json") + " --save-every 0 --log-every 1000000");
  std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(command); });
  EXPECT_TRUE(soon([&] { return losses("run").size() >= 5; }));
  for (const pid_t rank : ranks_with(path("run"))) kill(rank, SIGTERM);
  const Outcome stopped = job.get();
  EXPECT_EQ(count_of(stopped.output, "trace=" + path("trace.json")), 1u) << stopped.output;
  const auto steps = lanes_of(path("trace.json")).at(1).at("step");
  EXPECT_EQ(steps.back().name, "step " + std::to_string(losses("run").size() - 1));
}

TEST_F(TraceOption, ARunThatHasTakenItsStepsIsRefusedForThatAndNotForItsTrace) {
  ASSERT_EQ(shell(train(1, "--steps 3")).exit_code, 0);
  const Outcome again =
      shell(testing::on_ranks(1) + "train --resume " + path("run") + " --trace " + path("trace.json"));
  EXPECT_NE(again.exit_code, 0);
  EXPECT_EQ(count_of(again.output, "the run is at step 3 already"), 1u) << again.output;
  EXPECT_EQ(count_of(again.output, "--trace-steps"), 0u) << again.output;
}

TEST_F(TraceOption, WhatCannotBeTracedIsSaidBeforeTheRunBegins) {
  const Outcome late = shell(train(2, "--steps 3 --trace-steps 5:9 --trace " + path("trace.json")));
  EXPECT_NE(late.exit_code, 0);
  EXPECT_EQ(count_of(late.output, "--trace-steps 5:9 holds none of the steps 0 to 2 that this run takes"), 1u)
      << late.output;
  EXPECT_FALSE(fs::exists(path("run"))) << "the run's folder was touched";
  const Outcome nowhere = shell(train(2, "--steps 3 --trace " + path("no/trace.json")));
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_EQ(count_of(nowhere.output, "cannot write --trace " + path("no/trace.json") + ": No such file"), 1u)
      << nowhere.output;
  EXPECT_TRUE(losses("run").empty());
}

TEST(ClockOffset, IsTheMedianWhateverSinglePairsAreWorth) {
  EXPECT_EQ(clock_offset(std::vector<std::int64_t>{10, 20, 30}, std::vector<std::int64_t>{110, 9020, 131}),
            101);
  EXPECT_EQ(clock_offset(std::vector<std::int64_t>{5}, std::vector<std::int64_t>{2}), -3);
}

TEST(TraceEvents, PutTheWidestFirstOfSpansThatBeginTogether) {
  const Span::Clock::time_point origin;
  const auto at_ns = [&](int ns) { return origin + std::chrono::nanoseconds(ns); };
  EXPECT_EQ(trace_events({{SpanKind::kProduct, "down", at_ns(1500), at_ns(1600), 12},
                          {SpanKind::kPhase, "experts", at_ns(1500), at_ns(1700)},
                          {SpanKind::kStep, "step", at_ns(1500), at_ns(4000), 7}},
                         origin, 3),
            R"({"name":"step 7","cat":"step","ph":"X","pid":0,"tid":3,"ts":1.500,"dur":2.500},
{"name":"experts","cat":"phase","ph":"X","pid":0,"tid":3,"ts":1.500,"dur":0.200},
{"name":"down","cat":"product","ph":"X","pid":0,"tid":3,"ts":1.500,"dur":0.100,"args":{"rows":12}},
)");
}

TEST(TraceFile, LeavesNothingUnlessItIsFinished) {
  const fs::path path = fs::temp_directory_path() / ("moeloom-trace-" + std::to_string(getpid()));
  { TraceFile(path).append("{},\n"); }
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
  EXPECT_FALSE(fs::exists(path));
  TraceFile(path).finish(2);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(events_of(path).size(), 5u);
  fs::remove(path);
  EXPECT_THROW(TraceFile("/no/such/folder/trace.json"), IoError);
}

}  // namespace
}  // namespace moeloom
