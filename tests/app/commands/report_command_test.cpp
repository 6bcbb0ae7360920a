// report as a person meets it: folders in, one page out.
#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

using testing::count_of;
using testing::kProgram;
using testing::Outcome;
using testing::read_bytes;
using testing::shell;

class ReportCommand : public testing::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    for (const std::string run : {"a", "b", "c"}) {
      std::filesystem::create_directories(path(run));
      testing::write_bytes(
          path(run + "/metrics.jsonl"),
          R"({"step":0,"loss":2.5,"aux_loss":0,"z_loss":0,"grad_norm":1,"learning_rate":0.1,)"
          R"("tokens_per_s":10,"seconds":1,"tokens_seen":10,"message_bytes":0,"row_bytes":0,)"
          R"("rss_bytes":1,"phases":{},"expert_load":[]})"
          "\n");
    }
  }
  Outcome report(const std::string& words) const {
    return shell("cd " + path(".") + " && " + kProgram + " report " + words);
  }
};

TEST_F(ReportCommand, WritesOnePageOfAllTheRunsThatAreNamed) {
  const Outcome said = report("a b c");
  ASSERT_EQ(said.exit_code, 0) << said.output;
  EXPECT_EQ(said.output, "runs.html: 3 run(s)\n");
  EXPECT_EQ(count_of(read_bytes(path("runs.html")), "<h1>moeloom: 3 runs</h1>"), 1u);
  ASSERT_EQ(report("a --out one.html").exit_code, 0);
  EXPECT_EQ(count_of(read_bytes(path("one.html")), "<h1>moeloom: a</h1>"), 1u);
  EXPECT_FALSE(std::filesystem::exists(path("a/report.html"))) << "a run's own page is its own";
}

TEST_F(ReportCommand, SaysWhatItLacks) {
  const Outcome none = report("");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(count_of(none.output, "folders of runs are needed: moeloom report RUN [RUN...]"), 1u)
      << none.output;
  const Outcome other = report("a d");
  EXPECT_EQ(other.exit_code, 65);
  EXPECT_EQ(count_of(other.output, "expected a run in d, found no metrics.jsonl in it"), 1u) << other.output;
  EXPECT_FALSE(std::filesystem::exists(path("runs.html")));
}

}  // namespace
}  // namespace moeloom
