// moeloom.h on several ranks: experts spread over them, sums, the mesh, errors that all ranks learn of.
#include <string>
#include <thread>
#include <vector>

#include "layer.hpp"
#include "world.hpp"

namespace moeloom {
namespace {

using namespace testing;

TEST(CRanks, ExpertsHaveTheBitsOfABlockOnEveryNumberOfRanks) {
  const World world;
  const Communicator ranks = Communicator::world().split(0, Communicator::world().rank());
  const Index tokens = world.rank() == 1 ? 0 : 7 + world.rank();  // one rank without
  const LayerInputs in({}, tokens, world.size(), world.rank());
  CLayer layer(in, world.group), other(in, world.group);
  EXPECT_OK(layer.forward());
  EXPECT_OK(other.forward());
  EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
  EXPECT_OK(other.backward(other.grads(ML_REPLACE)));
  const LayerNumbers expected = by_rooms(ranks, in);
  layer.expect(expected, 0);
  other.expect(expected, 0);
}

TEST(CRanks, AMistakeOfOneRankIsToldToAll) {
  const World world;
  const LayerInputs in({}, 5, world.size(), world.rank());
  CLayer layer(in, world.group);
  if (world.rank() == world.size() - 1) layer.topk_idx = Array({5, 3}, {ML_I64});
  const ml_status status = layer.forward();
  EXPECT_EQ(status, ML_SHAPE) << ml_last_error();
  EXPECT_NE(std::string(ml_last_error()).find("topk_weights is [5, 2] and must be [5, 3]"), std::string::npos)
      << ml_last_error();
  const std::string mine = world.rank() == 0 ? "no data" : "";
  EXPECT_STATUS(ml_group_agree(world.group, mine.c_str()), ML_OTHER, "no data");
  EXPECT_OK(ml_group_agree(world.group, ""));
}

TEST(CRanks, SumsAreThoseOfAllRanksAndTheSameOnEach) {
  const World world;
  for (const Lie& lie : {Lie{ML_F32}, Lie{ML_F32, 3}, Lie{ML_BF16}}) {
    Matrix expected[3];
    std::vector<Array> arrays;
    const Index rows[] = {1, 300, 5}, cols[] = {1, 301, 7};
    for (Index i = 0; i < 3; ++i) {
      expected[i] = Matrix(rows[i], cols[i]);
      for (int rank = 0; rank < world.size(); ++rank)
        add(Array(random_matrix(rows[i], cols[i], at(10 * i + rank)), lie).numbers(), expected[i]);
      for (float& number : expected[i].view().flat()) number *= 0.25f;
      arrays.emplace_back(random_matrix(rows[i], cols[i], at(10 * i + world.rank())), lie);
    }
    const ml_array* views[] = {arrays[0], arrays[1], arrays[2]};
    EXPECT_OK(ml_group_sum(world.group, views, 3, 0.25));
    for (Index i = 0; i < 3; ++i) {
      const Matrix got = arrays[at(i)].numbers();
      expect_near(got, expected[i], 1e-6 + rounding_of(lie.dtype), "a sum");
      std::vector<double> mine(got.view().flat().begin(), got.view().flat().end());
      const std::vector<double> all = Communicator::world().all_gather(mine);
      for (std::size_t n = 0; n < all.size(); ++n) ASSERT_EQ(all[n], mine[n % mine.size()]);
    }
  }
}

TEST(CRanks, SumsOfDoublesAreExactWhereOneRankHasEach) {
  const World world;
  std::vector<double> numbers(at(3 * world.size()), 0.0);
  for (Index i = 0; i < 3; ++i) numbers[at(3 * world.rank() + i)] = 1.0 / (3 + world.rank() + i);
  float beside = 1;
  const ml_array doubles{numbers.data(), {world.size(), 3}, {3, 1}, 2, ML_F64};
  const ml_array floats{&beside, {1}, {1}, 1, ML_F32};
  const ml_array* views[] = {&doubles, &floats};
  EXPECT_OK(ml_group_sum(world.group, views, 2, 1));
  for (Index rank = 0; rank < world.size(); ++rank)
    for (Index i = 0; i < 3; ++i)
      EXPECT_EQ(numbers[at(3 * rank + i)], 1.0 / static_cast<double>(3 + rank + i));
  EXPECT_EQ(beside, static_cast<float>(world.size()));
  const ml_array integers{numbers.data(), {1}, {1}, 1, ML_I64};
  const ml_array* one[] = {&integers};
  EXPECT_STATUS(ml_group_sum(world.group, one, 1, 1), ML_TYPE, "ML_F32, ML_BF16, ML_F16 or ML_F64");
}

TEST(CRanks, TextsOfAllRanksAreGathered) {
  const World world;
  EXPECT_STREQ(ml_group_text(world.group, 0), "");
  EXPECT_OK(ml_group_gather_text(world.group, std::string(at(5 * world.rank()), 'x').c_str()));
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(ml_group_text(world.group, rank), std::string(at(5 * rank), 'x'));
  EXPECT_STREQ(ml_group_text(world.group, world.size()), "");
}

TEST(CRanks, AMeshDividesTheRanks) {
  const World world;
  ml_group *row = nullptr, *column = nullptr;
  EXPECT_OK(ml_group_mesh(world.group, world.size(), &row, &column));
  EXPECT_EQ(ml_group_size(row), world.size());
  EXPECT_EQ(ml_group_rank(row), world.rank());
  EXPECT_EQ(ml_group_size(column), 1);
  Index begin = -1, count = -1, all = 0;
  EXPECT_OK(ml_group_experts(row, 7, &begin, &count));
  for (int rank = 0; rank < world.rank(); ++rank) all += experts_of(7, world.size(), rank).count;
  EXPECT_EQ(begin, all);
  ml_group_close(row);
  ml_group_close(column);
  EXPECT_STATUS(ml_group_mesh(world.group, 7, &row, &column), ML_CONFIG, "ep = 7 does not divide");
  EXPECT_STATUS(ml_mpi_start(), ML_MPI, "MPI was started before");
  EXPECT_EQ(ml_mpi_running(), 1);
  EXPECT_OK(ml_group_barrier(world.group));
}

TEST(CRanks, AThreadThatMpiIsNotOfIsRefused) {
  const World world;  // of a program that started MPI for its main thread alone
  if (world.size() < 2) GTEST_SKIP() << "needs 2 ranks";
  std::jthread([&] {
    EXPECT_STATUS(ml_group_barrier(world.group), ML_MPI, "by another thread than the one that started it");
    ml_group* other = nullptr;
    EXPECT_STATUS(ml_group_world(&other), ML_MPI, "MPI_THREAD_SERIALIZED");
  }).join();
  EXPECT_OK(ml_group_barrier(world.group));
}

}  // namespace
}  // namespace moeloom
