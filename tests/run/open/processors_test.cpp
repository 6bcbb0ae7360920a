#include "open/processors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// One word a rank: bit p is processor p.
int share(const std::vector<std::int64_t>& masks, int rank) {
  return share_of_processors(masks, static_cast<int>(masks.size()), rank);
}

TEST(Processors, EachIsDividedByTheRanksThatMayRunOnIt) {
  struct Case {
    const char* what;
    std::vector<std::int64_t> masks;
    std::vector<int> shares;
  };
  const std::vector<Case> cases = {
      {"one rank, all processors", {0xff}, {8}},
      {"unbound ranks", {0xff, 0xff}, {4, 4}},
      {"a rank count that does not divide", {0xff, 0xff, 0xff}, {2, 2, 2}},
      {"thirds that add up", {0b111, 0b111, 0b111}, {1, 1, 1}},
      {"more ranks than processors", {0b11, 0b11, 0b11, 0b11}, {1, 1, 1, 1}},
      {"bound to a core each", {0b01, 0b10}, {1, 1}},
      {"two ranks to a socket", {0x0f, 0x0f, 0xf0, 0xf0}, {2, 2, 2, 2}},
      {"one bound, one not", {0x0f, 0xff}, {2, 6}},
      {"the last processor of a word", {std::int64_t{1} << 62 | (std::int64_t{-1} << 63)}, {2}},
      {"no processor known", {0}, {1}},
  };
  for (const Case& c : cases)
    for (std::size_t rank = 0; rank < c.masks.size(); ++rank)
      EXPECT_EQ(share(c.masks, static_cast<int>(rank)), c.shares[rank]) << c.what << ", rank " << rank;
}

TEST(Processors, AMaskMayTakeSeveralWords) {
  const std::vector<std::int64_t> masks = {0b1, 0b11, 0b0, 0b11};
  EXPECT_EQ(share_of_processors(masks, 2, 0), 2);
  EXPECT_EQ(share_of_processors(masks, 2, 1), 1);
}

TEST(Processors, AQuotaIsDividedByTheRanksThatHaveTheSame) {
  const std::vector<std::int64_t> quotas = {3000, 7, 3000, 7, 3000, 8, 0, 0, 400, 9};
  const std::vector<int> shares = {1, 1, 3, 16, 1};
  for (int rank = 0; rank < 5; ++rank)
    EXPECT_EQ(share_within_quota(16, quotas, rank), shares[static_cast<std::size_t>(rank)]) << rank;
  EXPECT_EQ(share_within_quota(2, quotas, 2), 2) << "no more than its share";
}

TEST(Processors, WhatIsAskedForWinsThenTheEnvironment) {
  const Communicator alone = Communicator::self();
  EXPECT_EQ(threads_for(3, 5, alone), 3);
  EXPECT_EQ(threads_for(0, 5, alone), 5);
  EXPECT_GE(threads_for(0, std::nullopt, alone), 1);
}

}  // namespace
}  // namespace moeloom
