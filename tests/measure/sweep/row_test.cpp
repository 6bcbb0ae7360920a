#include "moeloom/measure/sweep/row.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "sweep/rows_testing.hpp"
#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::point_row;

const EpPoint kPoint{.ranks = 4, .ep = 2, .patch = GmmPatch::kOn, .tokens = 4096};

std::vector<std::string> keys_in(const EpRow& row) {
  return document_of(row).keys();
}

TEST(BenchEpRow, SpreadIsTheNearestRanks) {
  const Spread spread = spread_of({11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(spread.p10, 2);
  EXPECT_EQ(spread.median, 6);
  EXPECT_EQ(spread.p90, 10);
  const Spread one = spread_of({5});
  EXPECT_TRUE(one.p10 == 5 && one.median == 5 && one.p90 == 5);
}

TEST(BenchEpRow, ReadsBackToEveryFieldOfItsDocument) {
  const EpRow row = point_row(kPoint, 12.345);
  const std::string line = document_of(row).dump(-1);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(document_of(row_from(Document::parse(line, "test"))).dump(-1), line);
  EXPECT_EQ(keys_in(row).size(), 40 + kPhases);
}

TEST(BenchEpRow, APointIsToldFromEveryOtherByItsKey) {
  EpPoint other = kPoint;
  other.ep = 4;
  EXPECT_NE(key_of(point_row(other, 1)), key_of(point_row(kPoint, 1)));
  EpRow with_threads = point_row(kPoint, 1);
  with_threads.threads = 2;
  EXPECT_NE(key_of(row_of(kPoint, with_threads)), key_of(point_row(kPoint, 1)));
  EXPECT_EQ(key_of(point_row(kPoint, 2)), key_of(point_row(kPoint, 1))) << "a measurement is no setting";
}

TEST(BenchEpRow, ADocumentWithoutAFieldIsRefusedByItsName) {
  Document document = document_of(point_row(kPoint, 1));
  document.erase("rank_load");
  EXPECT_NE(testing::message_of<IoError>([&] { row_from(document); }).find("rank_load"), std::string::npos);
}

TEST(BenchEpRow, CsvHasAHeadingAndALineARowWithQuotesWhereTheyAreNeeded) {
  const std::string csv = csv_of({point_row(kPoint, 1), point_row(kPoint, 2)});
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_TRUE(csv.starts_with("point,settings,mode,scaling,workload,ranks,dp,ep,gmm,"));
  EXPECT_NE(csv.find(",layer,strong,balanced,4,2,2,on,true,\"because, \"\"so\"\"\",auto,"), std::string::npos)
      << csv;
  const std::string heading = csv.substr(0, csv.find('\n'));
  EXPECT_EQ(std::ranges::count(heading, ',') + 1, std::ssize(keys_in(point_row(kPoint, 1))));
}

}  // namespace
}  // namespace moeloom
