// The collectives that carry rows and integer sums: each rank's share may differ, and none is limited by the
// 2^31 of an MPI count.
#include "moeloom/comm/communicator.hpp"

#include <algorithm>
#include <array>

#include "mpi_call.hpp"
#include "piece_swaps.hpp"

namespace moeloom {
namespace {

constexpr Index kFloatBytes = sizeof(float);

/// What one rank has for another, in some buffer.
struct Part {
  int count;
  MPI_Datatype type;
};

/// What two ranks have for each other. Each announces its message before it takes the other's: a rank that
/// comes late and takes first answers before it announces, and over TCP the answer to its announcement stands
/// in line behind what the other sends already. Then one direction waits until the other is through; so it is
/// in Open MPI's collectives.
void swap_with(int other, const void* sent, Part mine, void* received, Part theirs, MPI_Comm comm) {
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  check_mpi(MPI_Isend(sent, mine.count, mine.type, other, kStretchTag, comm, &requests[0]), "MPI_Isend");
  check_mpi(MPI_Irecv(received, theirs.count, theirs.type, other, kStretchTag, comm, &requests[1]),
            "MPI_Irecv");
  check_mpi(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

/// sent_to(rank) and received_from(rank): spans. The nearest ranks first, so that no two begin with the same.
template <typename SentTo, typename ReceivedFrom>
void swap_pieces(const Communicator& ranks, SentTo sent_to, ReceivedFrom received_from) {
  PieceSwaps swaps(ranks);
  for (Index step = 1; step < ranks.size(); ++step) {
    const Index other = (ranks.rank() + step) % ranks.size();
    swaps.add(other, std::as_bytes(sent_to(other)), std::as_writable_bytes(received_from(other)));
  }
  swaps.finish();
}

}  // namespace

void Communicator::all_to_all(std::span<const std::int64_t> sent, std::span<std::int64_t> received) const {
  require(sent.size() == received.size() && sent.size() % at(size_) == 0,
          "all_to_all needs equal blocks for every rank");
  if (size_ == 1) {
    std::copy(sent.begin(), sent.end(), received.begin());
    return;
  }
  const int block = mpi_count(std::ssize(sent) / size_);
  const Call in = call("MPI_Alltoall", static_cast<Index>(sizeof(std::int64_t)) * block * (size_ - 1));
  check_mpi(MPI_Alltoall(sent.data(), block, MPI_INT64_T, received.data(), block, MPI_INT64_T, handle_->comm),
            "MPI_Alltoall");
}

void Communicator::all_to_all_rows(ConstMatrixView rows, std::span<const Index> sent_per_rank,
                                   MatrixView received, std::span<const Index> received_per_rank) const {
  require(std::ssize(sent_per_rank) == size_ && std::ssize(received_per_rank) == size_,
          "all_to_all_rows needs one count a rank");
  const std::vector<Index> sent_offsets = offsets_of(sent_per_rank);
  const std::vector<Index> received_offsets = offsets_of(received_per_rank);
  require(sent_offsets.back() == rows.rows && received_offsets.back() == received.rows,
          "all_to_all_rows: the counts must add up to the rows");
  require(rows.cols == received.cols && rows.contiguous() && received.contiguous(),
          "all_to_all_rows needs contiguous rows of one width");
  if (size_ == 1) return copy(rows, received);
  const auto sent_to = [&](Index rank) {
    return rows.rows_from(sent_offsets[at(rank)], sent_per_rank[at(rank)]);
  };
  const auto received_from = [&](Index rank) {
    return received.rows_from(received_offsets[at(rank)], received_per_rank[at(rank)]);
  };
  const Index bytes = (rows.rows - sent_per_rank[at(rank_)]) * rows.cols * kFloatBytes;
  if (exchange_way() == ExchangeWay::kSwaps) {
    count_call(bytes);
    swap_pieces(
        *this, [&](Index rank) { return sent_to(rank).flat(); },
        [&](Index rank) { return received_from(rank).flat(); });
    return copy(sent_to(rank_), received_from(rank_));
  }
  const Call in = call("MPI_Alltoallv", bytes, only_other());
  RowExchangeMemory& kept = handle_->rows;
  const MPI_Datatype row = kept.row_of(rows.cols);
  if (size_ == 2) {
    const int other = 1 - rank_;
    swap_with(other, rows.row(sent_offsets[at(other)]), {mpi_count(sent_per_rank[at(other)]), row},
              received.row(received_offsets[at(other)]), {mpi_count(received_per_rank[at(other)]), row},
              handle_->comm);
    return copy(sent_to(rank_), received_from(rank_));
  }
  check_mpi(MPI_Alltoallv(rows.data, mpi_counts(sent_per_rank, kept.sent),
                          mpi_counts(sent_offsets, kept.sent_offsets), row, received.data,
                          mpi_counts(received_per_rank, kept.received),
                          mpi_counts(received_offsets, kept.received_offsets), row, handle_->comm),
            "MPI_Alltoallv");
}

void Communicator::reduce_scatter(std::span<const std::int64_t> values,
                                  std::span<const Index> counts_per_rank,
                                  std::span<std::int64_t> shard) const {
  require(std::ssize(counts_per_rank) == size_ && std::ssize(shard) == counts_per_rank[at(rank_)] &&
              std::ssize(values) == offsets_of(counts_per_rank).back(),
          "reduce_scatter: sizes must follow counts_per_rank");
  if (size_ == 1) {
    std::ranges::copy(values, shard.begin());
    return;
  }
  const Call in = call("MPI_Reduce_scatter",
                       std::ssize(values.subspan(shard.size())) * static_cast<Index>(sizeof(std::int64_t)));
  check_mpi(MPI_Reduce_scatter(values.data(), shard.data(), mpi_counts(counts_per_rank).data(), MPI_INT64_T,
                               MPI_SUM, handle_->comm),
            "MPI_Reduce_scatter");
}

}  // namespace moeloom
