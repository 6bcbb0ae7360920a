#include "record/metrics_writer.hpp"

#include "moeloom/base/errors.hpp"

#include "support/file_size_limit.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

StepMetrics line_of(Index number) {
  StepMetrics metrics;
  metrics.step = number;
  return metrics;
}

std::vector<Index> numbers_in(const std::filesystem::path& path) {
  std::vector<Index> numbers;
  for (const StepMetrics& metrics : read_metrics(path)) numbers.push_back(metrics.step);
  return numbers;
}

TEST(MetricsWriter, AResumedRunHasEveryStepOnce) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  for (const Index first : {0, 3, 5, 7, 0}) {
    MetricsWriter writer(path, first);
    for (Index number = first; number < first + 4; ++number) writer.append(line_of(number));
    std::vector<Index> expected;
    for (Index number = 0; number < first + 4; ++number) expected.push_back(number);
    EXPECT_EQ(numbers_in(path), expected) << first;
    EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  }
}

TEST(MetricsWriter, KeptLinesKeepTheirBytes) {
  const TemporaryFolder folder;
  const std::string line = R"({"step":0,"loss":1.25,"message_bytes":"of a later version","more":[1,2]})";
  write_bytes(folder / "m.jsonl", line + "\n");
  MetricsWriter(folder / "m.jsonl", 1).append(line_of(1));
  EXPECT_TRUE(read_bytes(folder / "m.jsonl").starts_with(line + "\n"));
}

TEST(MetricsWriter, WarnsWhenLinesBeginToWaitAndWhenTheyAreWritten) {
  const TemporaryFolder folder;
  MetricsWriter writer(folder / "m.jsonl", 0);
  EXPECT_FALSE(writer.append(line_of(0)));
  {
    const testing::FileSizeLimit limit(std::filesystem::file_size(folder / "m.jsonl") + 20);
    const auto waiting = writer.append(line_of(1));
    ASSERT_TRUE(waiting);
    EXPECT_TRUE(waiting->text().starts_with("metrics=waiting step=1 reason=")) << waiting->text();
    EXPECT_NE(writer.error().find("File too large"), std::string::npos);
    EXPECT_FALSE(writer.append(line_of(2))) << "that is known already";
    EXPECT_EQ(numbers_in(folder / "m.jsonl"), std::vector<Index>{0}) << "a part of a line is none";
  }
  const auto written = writer.append(line_of(3));
  ASSERT_TRUE(written);
  EXPECT_EQ(written->text(), "metrics=\"written again\" step=3 waited=2 lost=0");
  EXPECT_EQ(writer.error(), "");
  EXPECT_FALSE(writer.append(line_of(4)));
  EXPECT_EQ(numbers_in(folder / "m.jsonl"), (std::vector<Index>{0, 1, 2, 3, 4}));
}

TEST(MetricsWriter, AFullDiskIsAnIoError) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "m.jsonl.partial");
  write_bytes(folder / "m.jsonl", metrics_line(line_of(0)) + "\n");
  EXPECT_THROW(MetricsWriter(folder / "m.jsonl", 1), IoError);
  EXPECT_EQ(numbers_in(folder / "m.jsonl"), std::vector<Index>{0});
}

}  // namespace
}  // namespace moeloom
