// A run whose routers collapse says so: once, in its log, its metrics and its page.
#include <map>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

class CollapsingRun : public testing::ProgramTest {
 protected:
  /// Beginnings less ends, by layer.
  std::map<Index, Index> open_collapses() const {
    std::map<Index, Index> open;
    for (const StepMetrics& step : read_metrics(fs::path(path("run")) / "metrics.jsonl")) {
      for (const CollapseEvent& event : step.collapse) {
        open[event.layer] += event.begins ? 1 : -1;
        EXPECT_TRUE(open[event.layer] == 0 || open[event.layer] == 1) << "step " << step.step;
      }
    }
    return open;
  }
};

// At this learning rate routers saturate within a few steps, whatever the instruction set.
TEST_F(CollapsingRun, WarnsOnceAlsoAfterAResume) {
  const Outcome first = shell(train(2, "--experts 8 --ep 2 --lr 1 --aux-loss-coef 0 --steps 40"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_GE(count_of(first.output, "collapse=begins step="), 1u) << first.output;
  EXPECT_GE(open_collapses().size(), 1u);
  const Outcome second = shell(on_ranks(2) + "train --steps 70 --resume " + path("run"));
  ASSERT_EQ(second.exit_code, 0) << second.output;
  open_collapses();  // nothing begins that has not ended
  const std::vector<StepMetrics> steps = read_metrics(fs::path(path("run")) / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 70u);
  for (const StepMetrics& step : steps) {
    ASSERT_EQ(step.layers.size(), 2u);
    EXPECT_GE(step.layers[0].max_over_mean, 1) << step.step;
    EXPECT_GE(step.layers[0].load_gini, 0) << "also without a NaN";
  }
  std::ifstream page(path("run/report.html"));
  const std::string html{std::istreambuf_iterator<char>(page), {}};
  for (const char* part : {"<h2>Collapse of routers</h2>", "\"max_over_mean\":[", "\"load_gini\":[",
                           "\"last_rows\":[{\"values\":["})
    EXPECT_EQ(count_of(html, part), 1u) << part;
}

// Rows are then even, because the hot experts' are dropped: it is the choices that collapse.
TEST_F(CollapsingRun, ACapacityHidesNothing) {
  const Outcome run =
      shell(train(2, "--experts 8 --ep 2 --lr 1 --aux-loss-coef 0 --steps 80 --capacity-factor 0.5"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_GE(count_of(run.output, "collapse=begins step="), 1u) << run.output;
  double dropped = 0;
  for (const StepMetrics& step : read_metrics(fs::path(path("run")) / "metrics.jsonl"))
    dropped = std::max(dropped, step.layers.at(0).dropped_share);
  EXPECT_GT(dropped, 0.5);
}

}  // namespace
}  // namespace moeloom
