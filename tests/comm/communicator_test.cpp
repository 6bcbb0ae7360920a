#include "moeloom/comm/communicator.hpp"

#include "comm/node_map.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "tensor/tree_sum.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Number i that `rank` contributes, over many magnitudes so that another order of addition shows.
double contribution(Index rank, Index i) {
  const CounterRandom random(20, static_cast<std::uint64_t>(rank));
  return random.normal(static_cast<std::uint64_t>(i)) *
         std::pow(10.0, static_cast<double>((rank * 7 + i) % 9));
}

Index sum(const std::vector<Index>& counts) {
  return std::accumulate(counts.begin(), counts.end(), Index{0});
}

/// This test's communicators: the world, this process alone, the odd and the even ranks.
std::vector<Communicator> groups() {
  std::vector<Communicator> all;
  all.push_back(Communicator::world());
  all.push_back(Communicator::self());
  all.push_back(all[0].split(all[0].rank() % 2, all[0].rank()));
  return all;
}

/// The same, and again as if their ranks were alone on their nodes, on two nodes, on four.
std::vector<Communicator> groups_on_nodes() {
  std::vector<Communicator> all = groups();
  for (const Index nodes : {64, 2, 4})
    for (Communicator& group : groups()) {
      group.pretend_nodes(nodes);
      all.push_back(std::move(group));
    }
  return all;
}

TEST(Communicator, AloneNeedsNoMpi) {
  const Communicator self = Communicator::self();
  EXPECT_EQ(self.rank(), 0);
  EXPECT_EQ(self.size(), 1);
  EXPECT_EQ(self.split(3, 1).size(), 1);
  EXPECT_EQ(self.split_by_node().size(), 1);
  self.barrier();
  EXPECT_EQ(self.traffic().calls, 0);
}

TEST(Communicator, OrdersASplitByItsKey) {
  const Communicator world = Communicator::world();
  const Communicator reversed = world.split(0, -world.rank());
  EXPECT_EQ(reversed.size(), world.size());
  EXPECT_EQ(reversed.rank(), world.size() - 1 - world.rank());
  const Communicator pair = world.split(world.rank() / 2, world.rank());
  EXPECT_EQ(pair.rank(), world.rank() % 2);
}

TEST(Communicator, KeepsItsRanksWhenMoved) {
  Communicator comm = Communicator::world().split(0, Communicator::world().rank());
  const int rank = comm.rank();
  Communicator moved = std::move(comm);
  comm = Communicator::self();
  EXPECT_EQ(moved.rank(), rank);
  moved.barrier();
}

TEST(Communicator, GathersRankByRank) {
  for (const Communicator& comm : groups())
    for (const Index n : {0, 1, 5}) {
      std::vector<std::int64_t> mine, everyone;
      std::vector<double> mine_real, everyone_real;
      for (Index i = 0; i < n; ++i) mine.push_back(comm.rank() * 100 + i);
      for (Index i = 0; i < comm.size() * n; ++i) everyone.push_back(i / n * 100 + i % n);
      mine_real.assign(mine.begin(), mine.end());
      everyone_real.assign(everyone.begin(), everyone.end());
      EXPECT_EQ(comm.all_gather(std::span<const std::int64_t>(mine)), everyone);
      EXPECT_EQ(comm.all_gather(std::span<const double>(mine_real)), everyone_real);
    }
}

TEST(Communicator, GathersTextsOfAnyLength) {
  for (const Communicator& comm : groups()) {
    const auto text_of = [](int rank) {
      return std::string(at(rank * 700 % 1500), static_cast<char>('a' + rank));
    };
    std::vector<std::string> everyone;
    for (int rank = 0; rank < comm.size(); ++rank) everyone.push_back(text_of(rank));
    EXPECT_EQ(comm.all_gather_text(text_of(comm.rank())), everyone);
    EXPECT_EQ(comm.all_gather_text(""), std::vector<std::string>(at(comm.size())));
    EXPECT_EQ(comm.all_gather_text(std::string("a\0b", 3)).back(), std::string("a\0b", 3));
  }
}

TEST(Communicator, AddsIntegersExactly) {
  for (const Communicator& comm : groups()) {
    const std::int64_t large = std::int64_t{1} << 60;  // a double would lose the last digits
    std::vector<std::int64_t> values = {comm.rank(), comm.rank() == 0 ? large : 1, -5};
    comm.all_sum(std::span<std::int64_t>(values));
    const std::int64_t n = comm.size();
    EXPECT_EQ(values, (std::vector<std::int64_t>{n * (n - 1) / 2, large + n - 1, -5 * n}));
    comm.all_sum(std::span<std::int64_t>());
  }
}

TEST(Communicator, SumsBeforeAreThoseOfTheRanksBefore) {
  for (const Communicator& comm : groups()) {
    const std::int64_t rank = comm.rank();
    const std::int64_t large = (std::int64_t{1} << 53) + 1;  // a double would lose the last digit
    std::vector<std::int64_t> values = {rank + 1, large};
    comm.sum_before(values);
    EXPECT_EQ(values, (std::vector<std::int64_t>{rank * (rank + 1) / 2, rank * large}));
    comm.sum_before(std::span<std::int64_t>());
  }
}

TEST(Communicator, AddsNumbersAlongTheTreeToTheBit) {
  for (const Communicator& comm : groups())
    for (const Index n : {0, 1, 257}) {
      std::vector<double> values;
      for (Index i = 0; i < n; ++i) values.push_back(contribution(comm.rank(), i));
      comm.all_sum(std::span<double>(values));
      for (Index i = 0; i < n; ++i)
        ASSERT_EQ(values[at(i)], tree_sum(0, comm.size(), [&](Index rank) { return contribution(rank, i); }));
    }
}

TEST(Communicator, FindsTheLargestAndSpreadsNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Communicator& comm : groups()) {
    EXPECT_EQ(comm.all_max(-1.0 - comm.rank()), -1.0);
    EXPECT_EQ(comm.all_max(comm.rank()), comm.size() - 1);
    for (int bad = 0; bad < comm.size(); ++bad)
      EXPECT_TRUE(std::isnan(comm.all_max(comm.rank() == bad ? nan : 1.0))) << "NaN on rank " << bad;
  }
}

TEST(Communicator, BroadcastsFromEveryRoot) {
  for (const Communicator& comm : groups())
    for (int root = 0; root < comm.size(); ++root) {
      std::vector<float> values(5, static_cast<float>(comm.rank()));
      comm.broadcast(std::span<float>(values), root);
      EXPECT_EQ(values, std::vector<float>(5, static_cast<float>(root)));
      comm.broadcast(std::span<float>(), root);
    }
}

TEST(Communicator, ExchangesEqualBlocks) {
  for (const Communicator& comm : groups())
    for (const Index n : {0, 1, 3}) {
      std::vector<std::int64_t> sent, expected;
      for (Index i = 0; i < comm.size() * n; ++i) {
        sent.push_back(comm.rank() * 1000 + i / n * 10 + i % n);
        expected.push_back(i / n * 1000 + comm.rank() * 10 + i % n);
      }
      std::vector<std::int64_t> received(sent.size(), -1);
      comm.all_to_all(sent, received);
      EXPECT_EQ(received, expected);
    }
}

/// Rows that `from` sends to `to`; several kinds of traffic pattern.
Index rows_between(int pattern, Index from, Index to) {
  switch (pattern) {
    case 0:
      return 0;
    case 1:
      return to == 0 ? 4 : 0;  // everything to one rank
    case 2:
      return (from * 3 + to * 5 + 1) % 6;
    case 3:
      return from == to ? 2 : 0;
    case 4:
      return (from + 2 * to) % 4 * 1500;  // of many pieces, of some pairs one way only
    default:
      return 1;
  }
}

float element(Index from, Index to, Index row, Index column) {
  return static_cast<float>((((from * 8 + to) * 8192 + row) * 64 + column) % 16'777'213);
}

void expect_rows_arrive(const Communicator& comm, int pattern, Index cols) {
  const Index me = comm.rank();
  std::vector<Index> sent_per_rank, received_per_rank;
  for (Index rank = 0; rank < comm.size(); ++rank) {
    sent_per_rank.push_back(rows_between(pattern, me, rank));
    received_per_rank.push_back(rows_between(pattern, rank, me));
  }
  Matrix rows(sum(sent_per_rank), cols);
  Matrix received(sum(received_per_rank), cols);
  fill(received, -1);
  Index next = 0;
  for (Index to = 0; to < comm.size(); ++to)
    for (Index row = 0; row < sent_per_rank[at(to)]; ++row, ++next)
      for (Index j = 0; j < cols; ++j) rows.row(next)[j] = element(me, to, row, j);
  comm.all_to_all_rows(rows, sent_per_rank, received, received_per_rank);
  next = 0;
  for (Index from = 0; from < comm.size(); ++from)
    for (Index row = 0; row < received_per_rank[at(from)]; ++row, ++next)
      for (Index j = 0; j < cols; ++j) ASSERT_EQ(received.row(next)[j], element(from, me, row, j));
}

TEST(Communicator, MovesRowsToTheirRanks) {
  for (const Communicator& comm : groups_on_nodes())
    for (int pattern = 0; pattern < 6; ++pattern)
      for (const Index cols : {0, 1, 33}) {
        SCOPED_TRACE("pattern " + std::to_string(pattern) + " cols " + std::to_string(cols));
        expect_rows_arrive(comm, pattern, cols);
      }
}

TEST(Communicator, RefusesRowsThatTheCountsDoNotCover) {
  const Communicator self = Communicator::self();
  const std::vector<Index> two = {2}, three = {3};
  Matrix rows(2, 4), same(2, 4), narrow(2, 3), longer(3, 4);
  EXPECT_THROW(self.all_to_all_rows(rows, three, same, two), ShapeError);
  EXPECT_THROW(self.all_to_all_rows(rows, two, same, three), ShapeError);
  EXPECT_THROW(self.all_to_all_rows(rows, two, narrow, two), ShapeError);
  EXPECT_THROW(self.all_to_all_rows(rows, {}, same, two), ShapeError);
  EXPECT_THROW(self.all_to_all_rows(longer.view().cols_from(0, 3).rows_from(0, 2), two, narrow, two),
               ShapeError)
      << "rows with gaps between them";
}

TEST(Communicator, CountsTheBytesThatLeaveThisRank) {
  const Communicator comm = Communicator::world().split(0, Communicator::world().rank());
  const Index others = comm.size() - 1;
  const std::vector<Index> one_each(at(comm.size()), 1);
  Matrix rows(comm.size(), 10), received(comm.size(), 10);
  comm.all_to_all_rows(rows, one_each, received, one_each);
  EXPECT_EQ(comm.traffic().message_bytes, others * 10 * 4);
  EXPECT_EQ(comm.traffic().calls, others);
  std::vector<float> numbers(at(comm.size()));
  comm.broadcast(std::span<float>(numbers), 0);
  EXPECT_EQ(comm.traffic().message_bytes, others * (40 + (comm.rank() == 0 ? 4 * comm.size() : 0)));
}

TEST(Communicator, PretendedNodesAreThoseOfGroupsThatAreSplitFromIt) {
  Communicator world = Communicator::world().split(0, Communicator::world().rank());
  if (world.size() < 4) GTEST_SKIP() << "three ranks of a group on two nodes are needed";
  world.pretend_nodes(2);
  const Communicator reversed = world.split(0, -world.rank());
  ASSERT_NE(reversed.nodes(), nullptr);
  EXPECT_EQ(reversed.nodes()->nodes(), 2);
  EXPECT_EQ(reversed.nodes()->same_node(0, 1), world.nodes()->same_node(world.size() - 1, world.size() - 2));
  const Communicator of_one = world.split(static_cast<int>(world.nodes()->node_of[at(world.rank())]), 0);
  EXPECT_EQ(of_one.nodes(), nullptr) << "all on one node";
}

TEST(Communicator, KnowsNoNodesWithinOne) {
  EXPECT_EQ(Communicator::self().nodes(), nullptr);
  EXPECT_EQ(Communicator::world().split_by_node().nodes(), nullptr);
}

TEST(Communicator, ReportsAFailedCallWithMpisTextAndTheRank) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "alone, nothing is called";
  try {
    std::vector<float> values(1);
    world.broadcast(std::span<float>(values), world.size());
    ADD_FAILURE() << "a root outside the communicator was accepted";
  } catch (const MpiError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("MPI_Bcast"), std::string::npos) << text;
    EXPECT_NE(text.find("MPI_ERR_ROOT"), std::string::npos) << text;
    EXPECT_NE(text.find("rank " + std::to_string(world.rank())), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace moeloom
