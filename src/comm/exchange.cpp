// The collectives that carry rows and integer sums: each rank's share may differ.
#include "comm/messages.hpp"
#include "moeloom/comm/communicator.hpp"

#include <algorithm>

#include "mpi_call.hpp"

namespace moeloom {

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
  copy(rows.rows_from(sent_offsets[at(rank_)], sent_per_rank[at(rank_)]),
       received.rows_from(received_offsets[at(rank_)], received_per_rank[at(rank_)]));
  Messages messages(*this);
  const auto for_each_other = [&](auto visit) {
    for (int step = 1; step < size_; ++step) visit((rank_ + step) % size_);
  };
  for_each_other([&](int from) {
    messages.receive(from,
                     received.rows_from(received_offsets[at(from)], received_per_rank[at(from)]).flat());
  });
  for_each_other(
      [&](int to) { messages.send(to, rows.rows_from(sent_offsets[at(to)], sent_per_rank[at(to)]).flat()); });
  messages.finish();
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
