// Groups in a thread that MPI was not started for: it splits and frees no communicator.
#include <atomic>
#include <thread>

#define OMPI_SKIP_MPICXX 1  // before <mpi.h>: without the C++ interface, which MPI 3 removed
#include "layer.hpp"
#include "world.hpp"
#include <mpi.h>

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<int> freed_here = 0, freed_elsewhere = 0;

}  // namespace

/// In place of MPI's, for the library too.
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  ++(std::this_thread::get_id() == main_thread ? freed_here : freed_elsewhere);
  return PMPI_Comm_free(comm);
}

namespace moeloom {
namespace {

using namespace testing;

TEST(CThreads, ACommunicatorOfOneRankIsNotSplit) {
  const World world;
  ml_group *row = nullptr, *column = nullptr;
  EXPECT_OK(ml_group_mesh(world.group, world.size(), &row, &column));
  std::jthread([&] {
    ml_group *rows = nullptr, *columns = nullptr, *alone = nullptr;
    EXPECT_STATUS(ml_group_mesh(column, 1, &rows, &columns), ML_MPI, "by another thread");
    EXPECT_OK(ml_group_open(nullptr, &alone));
    EXPECT_OK(ml_group_mesh(alone, 1, &rows, &columns));  // which MPI is not called for
    for (ml_group* group : {alone, rows, columns}) ml_group_close(group);
  }).join();
  for (ml_group* group : {row, column}) ml_group_close(group);
}

TEST(CThreads, ACommunicatorIsFreedByTheNextCall) {
  const World world;
  ml_group *row = nullptr, *column = nullptr, *alone = nullptr;
  EXPECT_OK(ml_group_mesh(world.group, world.size(), &row, &column));
  const int before = freed_here;
  std::jthread([&] {
    for (ml_group* group : {column, row}) ml_group_close(group);
  }).join();
  EXPECT_EQ(freed_here, before);
  const MPI_Comm self = MPI_COMM_SELF;
  EXPECT_OK(ml_group_open(&self, &alone));
  EXPECT_EQ(freed_here, before + 1) << "the column's; the world still has the row";
  ml_group_close(alone);
  EXPECT_EQ(freed_here, before + 1) << "another thread may be in a call of its own";
  EXPECT_OK(ml_group_barrier(world.group));
  EXPECT_EQ(freed_here, before + (world.size() > 1 ? 2 : 1)) << "a rank alone calls nothing";
  EXPECT_EQ(freed_elsewhere, 0);
}

/// It would be in the way of the thread that MPI was started for, on one rank alone.
TEST(CThreads, WhoIsRefusedHasNoTurn) {
  const World world, other;
  if (world.size() < 2) GTEST_SKIP() << "a rank alone calls nothing";
  std::atomic<bool> ends = false;
  std::jthread beside([&] {
    while (!ends) EXPECT_STATUS(ml_group_barrier(other.group), ML_MPI, "by another thread");
  });
  for (int i = 0; i < 2000; ++i) EXPECT_OK(ml_group_barrier(world.group));
  ends = true;
}

}  // namespace
}  // namespace moeloom
