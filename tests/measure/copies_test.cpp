#include "measure/copies.hpp"

#include "moeloom/tensor/matrix.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

Matrix numbered_rows(Index rows, Index cols) {
  Matrix m(rows, cols);
  for (Index i = 0; i < rows * cols; ++i) m.view().data[i] = static_cast<float>(i % 1009);
  return m;
}

TEST(Copies, EveryWayWritesTheRowToEachPlaceAndNothingElse) {
  for (const CopyWay& way : copy_ways())
    for (const Index cols : {0, 1, 63, 64, 67, 512})
      for (const Index skew : {0, 1}) {
        const Matrix from = numbered_rows(1, cols + 1);
        Matrix to(3, 1024);
        const std::vector<float*> places = {to.row(0) + skew, to.row(2) + skew};
        way.spread(from.row(0), cols, places);
        for (Index row = 0; row < 3; ++row)
          for (Index j = 0; j < 1024; ++j) {
            const bool written = row != 1 && j >= skew && j < cols + skew;
            ASSERT_EQ(to.row(row)[j], written ? from.row(0)[j - skew] : 0)
                << way.name << " " << cols << " " << j;
          }
      }
}

TEST(Copies, EveryWaySumsRowsInTheirOrder) {
  for (const CopyWay& way : copy_ways())
    for (const Index cols : {1, 64, 200}) {
      const Matrix from = numbered_rows(3, cols);
      Matrix sum(1, cols);
      const std::vector<const float*> rows = {from.row(0), from.row(1), from.row(2)};
      way.gather(rows, cols, sum.row(0));
      for (Index j = 0; j < cols; ++j)
        ASSERT_EQ(sum.row(0)[j], from.row(0)[j] + from.row(1)[j] + from.row(2)[j]) << way.name << " " << cols;
    }
}

TEST(Copies, TheFastestIsNotFoundByOneLuckyRound) {
  int calls = 0;
  const CopyWay fastest = fastest_copy([&](const CopyWay& way) {
    ++calls;
    if (way.name == "memcpy" && calls == 8) return 0.1;  // once, by chance
    return way.name == "streaming" ? 0.5 : 1.0;
  });
  EXPECT_EQ(fastest.name, "streaming");
}

}  // namespace
}  // namespace moeloom
