#include "moeloom/moe/rebalance/expert_seats.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/moe/routing/no_expert.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ExpertSeats, StartWithEveryExpertAtItsNumber) {
  const ExpertSeats seats(4);
  EXPECT_TRUE(seats.as_numbered());
  for (Index expert = 0; expert < 4; ++expert) EXPECT_EQ(seats.seat_of(expert), expert);
}

TEST(ExpertSeats, FollowExpertsThatChangePlacesMoreThanOnce) {
  ExpertSeats seats(4);
  seats.swap(0, 3);  // 3 1 2 0
  seats.swap(3, 1);  // 3 0 2 1
  EXPECT_FALSE(seats.as_numbered());
  EXPECT_EQ(std::vector<Index>(seats.experts_at({0, 4}).begin(), seats.experts_at({0, 4}).end()),
            (std::vector<Index>{3, 0, 2, 1}));
  for (Index seat = 0; seat < 4; ++seat) EXPECT_EQ(seats.seat_of(seats.expert_at(seat)), seat);
  seats.swap(1, 3);
  seats.swap(0, 3);
  EXPECT_EQ(seats, ExpertSeats(4)) << "back where they were";
}

TEST(ExpertSeats, TranslateChoicesAndCounts) {
  ExpertSeats seats(3);
  seats.swap(0, 2);
  std::vector<std::int32_t> found = {9};
  seats.find_seats(std::vector<std::int32_t>{0, 1, kNoExpert, 2}, found);
  EXPECT_EQ(found, (std::vector<std::int32_t>{2, 1, kNoExpert, 0}));
  EXPECT_EQ(seats.by_expert(std::vector<Index>{10, 20, 30}), (std::vector<Index>{30, 20, 10}));
  EXPECT_THROW(seats.find_seats(std::vector<std::int32_t>{3}, found), ShapeError);
  EXPECT_THROW(seats.by_expert(std::vector<Index>{1}), ShapeError);
}

TEST(ExpertSeats, ListsTheMovesBetweenTwoPlacements) {
  const ExpertSeats before(3);
  EXPECT_TRUE(moves_between(before, before).empty());
  ExpertSeats after = before;
  after.swap(0, 2);
  const std::vector<SeatMove> moves = moves_between(before, after);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].expert, 2);
  EXPECT_EQ(moves[0].from, 2);
  EXPECT_EQ(moves[0].to, 0);
  EXPECT_EQ(moves[1].expert, 0);
}

}  // namespace
}  // namespace moeloom
