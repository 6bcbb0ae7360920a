#include "moeloom/job/mesh_shape.hpp"

#include "moeloom/base/errors.hpp"

#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Texts = std::vector<std::string>;

const Texts kDpFirst = {"dp", "ep"};
const Texts kEpFirst = {"ep", "dp"};

TEST(MeshShape, PlacesEveryRankOnceInBothOrders) {
  struct Case {
    MeshShape shape;
    std::vector<Index> dp_ranks, ep_ranks;
  };
  const Case cases[] = {
      {{1, 1, kDpFirst}, {0}, {0}},
      {{2, 4, kDpFirst}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 2, 3, 0, 1, 2, 3}},
      {{2, 4, kEpFirst}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2, 3, 3}},
      {{3, 1, kDpFirst}, {0, 1, 2}, {0, 0, 0}},
      {{1, 3, kEpFirst}, {0, 0, 0}, {0, 1, 2}},
      {{3, 2, kEpFirst}, {0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.shape.text() + " fastest " + c.shape.order.back());
    ASSERT_EQ(c.shape.world(), std::ssize(c.dp_ranks));
    for (Index rank = 0; rank < c.shape.world(); ++rank) {
      EXPECT_EQ(c.shape.dp_rank(rank), c.dp_ranks[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(c.shape.ep_rank(rank), c.ep_ranks[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(c.shape.world_rank(c.shape.dp_rank(rank), c.shape.ep_rank(rank)), rank);
    }
  }
}

TEST(MeshShape, SaysWhatItIs) {
  const MeshShape shape{.dp = 2, .ep = 4};
  EXPECT_EQ(shape.text(), "dp=2 ep=4");
}

TEST(MeshShape, FillsInDpFromTheNumberOfRanks) {
  EXPECT_EQ((MeshShape{.dp = 0, .ep = 2}.completed(8).dp), 4);
  EXPECT_EQ((MeshShape{.dp = 3, .ep = 2}.completed(8).dp), 3);
}

TEST(MeshViolations, AreNoneWhereTheMeshFits) {
  EXPECT_EQ(mesh_violations({.dp = 2, .ep = 4}, 8, 8), Texts());
  EXPECT_EQ(mesh_violations({.dp = 0, .ep = 4}, 8, 128), Texts());
  EXPECT_EQ(mesh_violations({.dp = 1, .ep = 3}, 3, 0), Texts()) << "no experts to place";
  EXPECT_EQ(mesh_violations({.dp = 2, .ep = 2, .order = kEpFirst}, 4, 6), Texts());
  EXPECT_EQ(mesh_violations({.dp = 0, .ep = 3}, 3, 8), Texts()) << "the first ranks hold one expert more";
  EXPECT_EQ(mesh_violations({.dp = 0, .ep = 8}, 8, 8), Texts());
}

TEST(MeshViolations, GiveTheArithmeticAndTheWayOut) {
  EXPECT_EQ(mesh_violations({.dp = 0, .ep = 16}, 16, 8),
            Texts{"ep = 16 is more than num_experts = 8, so that 8 rank(s) of each ep row would hold no "
                  "expert; choose ep of at most 8"});
}

/// One violation that holds all of `parts`.
void expect_one_with(const Texts& violations, const Texts& parts) {
  ASSERT_EQ(violations.size(), 1u);
  for (const std::string& part : parts)
    EXPECT_NE(violations[0].find(part), std::string::npos) << violations[0] << " lacks " << part;
}

TEST(MeshViolations, NameTheRanksThatDoNotFit) {
  expect_one_with(mesh_violations({.dp = 0, .ep = 3}, 4, 9), {"ep = 3", "does not divide", "4", "1, 2, 4"});
  expect_one_with(mesh_violations({.dp = 0, .ep = 5}, 12, 9), {"choose ep from 1, 2, 3, 4, 6, 12, or"});
  expect_one_with(mesh_violations({.dp = 0, .ep = 5}, 9, 9), {"choose ep from 1, 3, 9, or"});
  expect_one_with(mesh_violations({.dp = 0, .ep = 2}, 1, 9), {"choose ep from 1, or"});
  expect_one_with(mesh_violations({.dp = 2, .ep = 2}, 8, 8), {"2 x 2 = 4", "8 ranks"});
  expect_one_with(mesh_violations({.dp = 1, .ep = 0}, 4, 8), {"ep = 0", "at least 1"});
  expect_one_with(mesh_violations({.dp = -1, .ep = 2}, 4, 8), {"dp = -1", "at least 1"});
}

TEST(MeshViolations, AreAllListedTogether) {
  EXPECT_EQ(mesh_violations({.dp = 0, .ep = 3}, 4, 2).size(), 2u);
  EXPECT_EQ(mesh_violations({.dp = -1, .ep = 3}, 4, 2).size(), 3u);
}

TEST(MeshOrder, IsReadFromText) {
  EXPECT_EQ(parse_mesh_order("dp,ep"), kDpFirst);
  EXPECT_EQ(parse_mesh_order("ep,dp"), kEpFirst);
}

TEST(MeshOrder, IsRefusedUnlessItNamesEachAxisOnce) {
  for (const std::string text : {"", "dp", "ep", "dp,dp", "dp,tp", "dp,ep,ep", "dp,ep,", ",dp,ep", "ep dp"}) {
    SCOPED_TRACE('"' + text + '"');
    try {
      parse_mesh_order(text);
      ADD_FAILURE() << "was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find('"' + text + '"'), std::string::npos) << error.what();
    }
  }
}

TEST(MeshOrder, IsOneOfTheViolations) {
  for (const Texts& order : {Texts{}, Texts{"dp"}, Texts{"ep", "tp"}, Texts{"ep", "ep"}})
    EXPECT_FALSE(mesh_violations({.dp = 1, .ep = 1, .order = order}, 1, 8).empty()) << order.size();
}

TEST(ExpertsOf, CoverAllExpertsInOrderAlsoWithARemainder) {
  for (const Index experts : {0, 1, 2, 7, 8, 128})
    for (const Index ep : {1, 2, 3, 4, 8, 9}) {
      Index next = 0;
      for (Index rank = 0; rank < ep; ++rank) {
        const ExpertRange held = experts_of(experts, ep, rank);
        EXPECT_EQ(held.begin, next);
        EXPECT_EQ(held.count, experts / ep + (rank < experts % ep ? 1 : 0));
        next += held.count;
      }
      EXPECT_EQ(next, experts) << "experts " << experts << " ep " << ep;
    }
}

}  // namespace
}  // namespace moeloom
