#include "measure/sweep/row.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "support/expect_error.hpp"
#include "sweep/rows_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::point_row;

const EpPoint kPoint{.ranks = 4, .ep = 2, .gmm = GmmRequest::kForce, .tokens = 4096};

std::vector<std::string> keys_in(const EpRow& row) {
  return document_of(row).keys();
}

TEST(SweepRow, ARowIsTheMedianOfTimesAndTheMeanOfTheRest) {
  EpRow row;
  row.tokens = 600;
  std::vector<EpSample> samples(3);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto n = static_cast<double>(i + 1);
    samples[i] = {.step = {.seconds = 0.1 * n * n,
                           .message_bytes = 10 * n,
                           .row_bytes = 20 * n,
                           .rows = 300 * n,
                           .expert_load = n,
                           .rank_load = 2 * n,
                           .expert_gini = 0.1 * n,
                           .rank_gini = 0.05 * n},
                  .peak_gflops = 100 / n};
    samples[i].step.phase_seconds[2] = 0.01 * n;
  }
  std::vector<EpSample> first = samples;
  for (EpSample& sample : first) sample.step.seconds = 0.2;
  summarise(samples, first, {.flops = 4e9, .rows = 1000}, row);
  EXPECT_DOUBLE_EQ(row.of_first.median, 2);
  EXPECT_DOUBLE_EQ(row.of_first.p90, 4.5);
  EXPECT_DOUBLE_EQ(row.step_ms.p10, 100);
  EXPECT_DOUBLE_EQ(row.step_ms.median, 400);
  EXPECT_DOUBLE_EQ(row.step_ms.p90, 900);
  EXPECT_DOUBLE_EQ(row.tokens_per_s, 1500);
  EXPECT_DOUBLE_EQ(row.phase_ms[2], 20);
  EXPECT_EQ(row.message_bytes, 20);
  EXPECT_EQ(row.row_bytes, 40);
  EXPECT_EQ(row.expert_load, 2);
  EXPECT_EQ(row.rank_load, 4);
  EXPECT_DOUBLE_EQ(row.expert_gini, 0.2);
  EXPECT_DOUBLE_EQ(row.rank_gini, 0.1);
  EXPECT_DOUBLE_EQ(row.dropped_share, 0.4) << "600 rows of 1000";
  EXPECT_DOUBLE_EQ(row.peak_gflops, 50);
  EXPECT_DOUBLE_EQ(row.peak_share, 0.2) << "of 0.4, 0.2 and 0.13, each of its own sample";
  EXPECT_EQ(row.samples, 3);
}

TEST(SweepRow, ReadsBackToEveryFieldOfItsDocument) {
  const EpRow row = point_row(kPoint, 12.345);
  const std::string line = document_of(row).dump(-1);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(document_of(row_from(Document::parse(line, "test"))).dump(-1), line);
  EXPECT_EQ(keys_in(row).size(), 49 + kPhases);
}

TEST(SweepRow, APointIsToldFromEveryOtherByItsKey) {
  EpPoint other = kPoint;
  other.ep = 4;
  EXPECT_NE(key_of(point_row(other, 1)), key_of(point_row(kPoint, 1)));
  EpRow with_threads = point_row(kPoint, 1);
  with_threads.threads = 2;
  EXPECT_NE(key_of(row_of(kPoint, with_threads)), key_of(point_row(kPoint, 1)));
  EXPECT_EQ(key_of(point_row(kPoint, 2)), key_of(point_row(kPoint, 1))) << "a measurement is no setting";
}

TEST(SweepRow, ADocumentWithoutAFieldIsRefusedByItsName) {
  Document document = document_of(point_row(kPoint, 1));
  document.erase("rank_load");
  EXPECT_NE(testing::message_of<IoError>([&] { row_from(document); }).find("rank_load"), std::string::npos);
  document = document_of(point_row(kPoint, 1));
  for (const char* later : {"of_first", "of_first_p10", "of_first_p90", "ms_report", "loss", "dropped_share",
                            "peak_gflops", "peak_share"})
    document.erase(later);
  EXPECT_EQ(row_from(document).phase_ms[static_cast<std::size_t>(Phase::kReport)], 0)
      << "as it was written once";
}

TEST(SweepRow, CsvHasAHeadingAndALineARowWithQuotesWhereTheyAreNeeded) {
  const std::string csv = csv_of({point_row(kPoint, 1), point_row(kPoint, 2)});
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_TRUE(csv.starts_with("point,settings,mode,scaling,workload,ranks,dp,ep,gmm,"));
  EXPECT_NE(csv.find(",layer,strong,balanced,4,2,2,force,true,\"because, \"\"so\"\"\",auto,"),
            std::string::npos)
      << csv;
  const std::string heading = csv.substr(0, csv.find('\n'));
  EXPECT_EQ(std::ranges::count(heading, ',') + 1, std::ssize(keys_in(point_row(kPoint, 1))));
}

}  // namespace
}  // namespace moeloom
