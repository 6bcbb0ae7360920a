#include "moe/routing/selection.hpp"

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Candidates of all ranks in order, and this rank's stretch of them.
struct Dealt {
  std::vector<std::int32_t> expert;
  std::vector<float> value;
  Index begin = 0, count = 0;

  Dealt(std::vector<std::int32_t> experts, std::vector<float> values, const Communicator& world)
      : expert(std::move(experts)), value(std::move(values)) {
    const Index all = std::ssize(expert), each = ceil_div(all, world.size());
    begin = std::min(all, each * world.rank());
    count = std::min(each, all - begin);  // the last ranks may have none
  }
  Candidates mine(Index experts) const {
    return {std::span(expert).subspan(at(begin), at(count)), std::span(value).subspan(at(begin), at(count)),
            experts};
  }
};

/// By whole sorts: value falling, then order; NaN last.
std::vector<std::uint8_t> kept_by_sorting(const Dealt& all, Index experts, Index capacity) {
  std::vector<std::uint8_t> keep(all.expert.size());
  for (std::int32_t e = 0; e < experts; ++e) {
    std::vector<std::size_t> of_expert;
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (all.expert[i] == e) of_expert.push_back(i);
    std::ranges::stable_sort(of_expert, [&](std::size_t a, std::size_t b) {
      const bool a_is_nan = all.value[a] != all.value[a], b_is_nan = all.value[b] != all.value[b];
      if (a_is_nan || b_is_nan) return !a_is_nan && b_is_nan;
      return all.value[a] > all.value[b];
    });
    for (std::size_t i = 0; i < of_expert.size() && i < at(capacity); ++i) keep[of_expert[i]] = 1;
  }
  return keep;
}

std::vector<std::uint8_t> part(const std::vector<std::uint8_t>& keep, const Dealt& all) {
  return {keep.begin() + all.begin, keep.begin() + all.begin + all.count};
}

void expect_as_sorted(const std::vector<std::int32_t>& experts, const std::vector<float>& values,
                      Index num_experts) {
  const Communicator world = Communicator::world();
  const Dealt all(experts, values, world);
  for (const Index capacity : {1, 2, 5, 40}) {
    SCOPED_TRACE("capacity " + std::to_string(capacity));
    EXPECT_EQ(keep_largest(world, all.mine(num_experts), capacity),
              part(kept_by_sorting(all, num_experts, capacity), all));
  }
}

TEST(Selection, KeepsWhatAWholeSortKeepsHoweverTokensAreDealt) {
  const Index n = 60, num_experts = 5;
  std::vector<std::int32_t> experts;
  for (Index i = 0; i < n; ++i) experts.push_back(static_cast<std::int32_t>(i * i % num_experts));
  const Matrix random = testing::random_matrix(1, n, 3);
  const std::vector<float> values(random.row(0), random.row(0) + n);
  expect_as_sorted(experts, values, num_experts);

  std::vector<float> ties(values.size());
  for (std::size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 3);
  expect_as_sorted(experts, ties, num_experts);
  expect_as_sorted(experts, std::vector<float>(at(n), 0.0f), num_experts);
  expect_as_sorted(std::vector<std::int32_t>(at(n), 2), values, num_experts);  // one takes everything
}

TEST(Selection, OrdersAllNumbersAndPutsNaNLast) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float tiny = std::numeric_limits<float>::denorm_min();
  expect_as_sorted(std::vector<std::int32_t>(10, 0), {-0.0f, nan, -inf, tiny, 0.0f, -tiny, inf, -1, nan, 1},
                   1);
}

TEST(Selection, LeavesOutCandidatesWithoutAnExpert) {
  expect_as_sorted({0, kNoExpert, 0, kNoExpert, 1, 0}, {1, 9, 2, 9, 3, 4}, 2);
}

TEST(Selection, HasNoCandidates) {
  expect_as_sorted({}, {}, 3);
}

}  // namespace
}  // namespace moeloom
