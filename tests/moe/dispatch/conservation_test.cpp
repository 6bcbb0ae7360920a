#include "dispatch/conservation.hpp"

#include "moe/dispatch/dispatcher.hpp"

#include "dispatch/count_exchange.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 11, kTopK = 2, kTokens = 6, kWidth = 5;

std::vector<std::int32_t> choices(Index rank) {
  std::vector<std::int32_t> chosen;
  for (Index slot = 0; slot < kTokens * kTopK; ++slot)
    chosen.push_back(static_cast<std::int32_t>((slot / kTopK * 3 + slot % kTopK + rank) % kExperts));
  return chosen;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const CountError& error) {
    return error.what();
  }
  return {};
}

TEST(Conservation, ACountThatChangedOnItsWayIsFoundByItsReceiverBeforeRowsMove) {
  const Communicator ep = Communicator::world();
  DispatchPlan plan;
  plan_sending(choices(ep.rank()), kTopK, kExperts, ep.size(), plan);
  std::vector<std::int64_t> counts = plan.tokens_per_expert;
  if (ep.rank() == 0) counts.back() += 1;  // of an expert of the last rank
  const std::string error = error_of([&] { exchange_counts(ep, counts, plan.sent_per_rank); });
  const Index last = ep.size() - 1, sent = plan.sent_per_rank[at(last)];
  if (ep.rank() != last) {
    EXPECT_EQ(error, "");
    return;
  }
  EXPECT_TRUE(error.starts_with("rank 0 of ep sends ")) << error;
  EXPECT_NE(error.find("to rank " + std::to_string(last) + " of ep, whose counts from there add up to "),
            std::string::npos)
      << error;
  if (last == 0) {
    EXPECT_NE(error.find("sends " + std::to_string(sent) + " rows"), std::string::npos) << error;
    EXPECT_NE(error.find("add up to " + std::to_string(sent + 1) + " rows"), std::string::npos) << error;
  }
}

TEST(Conservation, CountsThatAllSeeAreThoseThatWereTold) {
  const std::vector<std::int64_t> counts = {3, 0, 4};
  EXPECT_EQ(error_of([&] { check_told_in_all(1, counts, 7); }), "");
  EXPECT_EQ(error_of([&] { check_told_in_all(1, counts, 8); }),
            "rank 1 of ep sends 8 rows, but its counts add up to 7 rows; memory has changed a number");
}

/// Every rank changes its own plan, so that none waits for another.
TEST(Conservation, APlanThatChangedIsRefusedOutAndHomeByEveryDispatcher) {
  const Communicator ep = Communicator::world().split_by_node();
  for (const DispatcherKind kind : kDispatcherKinds) {
    SCOPED_TRACE(name_of(kind));
    Dispatcher dispatcher(ep, kExperts, open_dispatcher(kind, ep, kExperts));
    DispatchPlan plan;
    dispatcher.plan(choices(ep.rank()), kTopK, plan);
    Matrix tokens(kTokens, kWidth), sums(kTokens, kWidth);
    RowBuffer rows, results;
    const RoundTrip trip{.plan = plan,
                         .tokens = tokens,
                         .rows = rows,
                         .scalars_out = std::nullopt,
                         .results = results,
                         .sums = sums};
    DispatchPlan whole = plan;
    plan.rows_per_source[0] += 1;
    EXPECT_NE(error_of([&] { dispatcher.begin(trip); }).find(" by their senders they are "),
              std::string::npos);
    plan = whole;
    dispatcher.begin(trip);
    for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
      dispatcher.await(trip, chunk);
      dispatcher.send_back(trip, chunk);
    }
    plan.sent_per_rank[0] -= 1;
    EXPECT_NE(error_of([&] { dispatcher.finish(trip); }).find(" by their receivers they are "),
              std::string::npos);
    plan = whole;
    dispatcher.finish(trip);
  }
}

}  // namespace
}  // namespace moeloom
