#include "moeloom/moe/dispatch/whole_trip.hpp"

#include <string>

#include "dispatch/trips.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Notes what is asked of it.
struct NotingWay {
  std::string* said;
  void plan(std::span<const std::int32_t>, Index, DispatchPlan&) { *said += "plan "; }
  void dispatch(const DispatchPlan&, ConstMatrixView, RowBuffer&, std::optional<ScalarsOut>) {
    *said += "dispatch ";
  }
  void prepare(RowBuffer&, Index count, Index cols) const {
    *said += "prepare " + std::to_string(count) + "x" + std::to_string(cols) + " ";
  }
  void combine(const DispatchPlan&, const RowBuffer&, MatrixView, Write mode, std::optional<ScalarsBack>) {
    *said += mode == Write::kAdd ? "combine, added" : "combine";
  }
  std::int64_t network_bytes() const { return 7; }
};

TEST(WholeTrip, IsADispatchAndACombineAroundOneChunk) {
  std::string said;
  WholeTrip trip(NotingWay{&said});
  DispatchPlan plan;
  trip.plan({}, 1, plan);
  plan.rows_per_source = {2, 3};
  const Matrix tokens(4, 6);
  Matrix sums(4, 6);
  RowBuffer rows, results;
  EXPECT_TRUE(trip.arrived(0));
  testing::travel(trip,
                  {.plan = plan,
                   .tokens = tokens,
                   .rows = rows,
                   .scalars_out = std::nullopt,
                   .results = results,
                   .sums = sums,
                   .mode = Write::kAdd},
                  [&](Index chunk) { said += "chunk " + std::to_string(chunk) + " "; });
  EXPECT_EQ(said, "plan dispatch prepare 5x6 chunk 0 combine, added");
  EXPECT_EQ(trip.network_bytes(), 7);
}

}  // namespace
}  // namespace moeloom
