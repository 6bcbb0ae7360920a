#include "moeloom/comm/adopt.hpp"

#include "moeloom/base/errors.hpp"

#include <array>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Adopt, HasTheRanksOfACommunicatorThatStaysTheCallers) {
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &half);
  {
    const Communicator ranks = adopt(half);
    int rank = 0, size = 0;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    EXPECT_EQ(ranks.rank(), rank);
    EXPECT_EQ(ranks.size(), size);
    // A message that the caller has under way is not the library's.
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    float sent = static_cast<float>(rank), received = -1;
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(&received, 1, MPI_FLOAT, before, MPI_ANY_TAG, half, &requests[0]);
    std::vector<std::int64_t> sum = {rank};
    ranks.all_sum(std::span(sum));
    EXPECT_EQ(sum.front(), size * (size - 1) / 2);
    MPI_Isend(&sent, 1, MPI_FLOAT, next, 7, half, &requests[1]);
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
    EXPECT_EQ(received, static_cast<float>(before));
  }
  MPI_Barrier(half);  // the caller's lives on
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace moeloom
