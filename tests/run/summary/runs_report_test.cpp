#include "summary/runs_report.hpp"

#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/sections.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using testing::has_row;
using testing::message_of;
using testing::section_in;
using testing::TemporaryFolder;
using testing::titles_of;
using testing::write_bytes;

void write_run(const fs::path& folder, Index steps, double loss, const std::string& configuration) {
  fs::create_directories(folder);
  MetricsWriter writer(folder / "metrics.jsonl", 0);
  for (Index i = 0; i < steps; ++i) {
    StepMetrics step;
    step.step = i;
    step.loss = loss;
    step.tokens_per_s = 100;
    step.seconds = 2;
    step.tokens_seen = 10 * (i + 1);
    if (i == 1) step.val_loss = loss + 1;
    step.seconds_by_phase = {{"experts", 1.5}, {"data", 0.5}};
    step.layers = {{.max_over_mean = 1.5}};
    writer.append(step);
  }
  write_bytes(folder / "train.conf", configuration);
}

class RunsReport : public ::testing::Test {
 protected:
  RunsReport() {
    write_run(folder_ / "a", 3, 4, "lr = 0.1\nsteps = 3\nrun = x/a\nseed = 1\n");
    write_run(folder_ / "b/run", 5, 2, "lr = 0.2\nsteps = 5\nrun = x/b\nseed = 1\n");
    write_run(folder_ / "c/run", 5, 3, "lr = 0.2\nsteps = 5\nseed = 1\nmoments = bf16\n");
  }
  const TemporaryFolder folder_;
};

TEST_F(RunsReport, NamesAreTheShortestThatTellFoldersApart) {
  const auto names = [&](std::vector<fs::path> folders) {
    std::vector<std::string> names;
    for (const RunRecord& run : read_runs(folders)) names.push_back(run.name);
    return names;
  };
  EXPECT_EQ(names({folder_ / "a/", folder_ / "b/run"}), (std::vector<std::string>{"a", "run"}));
  EXPECT_EQ(names({folder_ / "b/run", folder_ / "c/run/"}), (std::vector<std::string>{"b/run", "c/run"}));
  EXPECT_EQ(names({folder_ / "b/run", folder_ / "b/run"}).size(), 2u) << "the same folder twice";
}

TEST_F(RunsReport, LaysLinesOverEachOtherAndNumbersSideBySide) {
  const Report report = runs_report(read_runs({folder_ / "a", folder_ / "b/run"}));
  EXPECT_EQ(report.title, "moeloom: 2 runs");
  const std::vector<Document> drawn = report.drawn.objects("runs");
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0].object("lines").numbers("step"), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(drawn[1].text("name"), "run");
  EXPECT_EQ(drawn[1].object("lines").numbers("tokens"), (std::vector<double>{10, 20, 30, 40, 50}));
  const Table numbers = section_in(report.sections, "Runs").table;
  EXPECT_TRUE(has_row(numbers, {"a", "3", "4", "5", "100", "30", "6 s", "0"}));
  EXPECT_TRUE(has_row(numbers, {"run", "5", "2", "3", "100", "50", "10 s", "0"}));
  EXPECT_TRUE(has_row(section_in(report.sections, "Time by phase").table,
                      {"experts", "1.5 s", "75.0 %", "1.5 s", "75.0 %"}));
}

TEST_F(RunsReport, ShowsTheOptionsThatDiffer) {
  const Report report = runs_report(read_runs({folder_ / "a", folder_ / "b/run", folder_ / "c/run"}));
  const Table table = section_in(report.sections, "Options that differ").table;
  EXPECT_EQ(table.heading, (std::vector<std::string>{"", "a", "b/run", "c/run"}));
  EXPECT_EQ(table.rows.size(), 3u) << "not the seed, nor the folder";
  EXPECT_TRUE(has_row(table, {"lr", "0.1", "0.2", "0.2"}));
  EXPECT_TRUE(has_row(table, {"steps", "3", "5", "5"}));
  EXPECT_TRUE(has_row(table, {"moments", "", "", "bf16"}));
}

TEST_F(RunsReport, OfARunAloneShowsItsConfiguration) {
  const Report report = runs_report(read_runs({folder_ / "a"}));
  EXPECT_EQ(report.title, "moeloom: a");
  EXPECT_EQ(titles_of(report.sections),
            (std::vector<std::string>{"Runs", "", "", "Time by phase", "Steps", "Layers", "Configuration"}));
}

TEST_F(RunsReport, SaysWhatIsNoRunAndWhatHasNoStep) {
  const auto error_of = [&](const fs::path& folder) {
    return message_of<IoError>([&] { read_runs({folder_ / "a", folder}); });
  };
  EXPECT_NE(error_of(folder_ / "none")
                .find("expected a run in " + (folder_ / "none").string() +
                      ", found no metrics.jsonl in it; name the folder"),
            std::string::npos);
  write_run(folder_ / "new", 0, 1, "");
  EXPECT_NE(error_of(folder_ / "new").find("found no line that is whole"), std::string::npos);
  write_bytes(folder_ / "new/metrics.jsonl", "{\"step\": 0, \"lo");
  EXPECT_NE(error_of(folder_ / "new").find("found no line that is whole"), std::string::npos);
  fs::remove(folder_ / "b/run/train.conf");
  EXPECT_EQ(read_runs({folder_ / "b/run"}).at(0).configuration, "") << "lines need none";
}

}  // namespace
}  // namespace moeloom
