// The collectives that carry rows and gradients: each rank's share may differ, and none is limited by the
// 2^31 of an MPI count.
#include "moeloom/comm/communicator.hpp"
#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "mpi_call.hpp"
#include "node_exchange.hpp"
#include "piece_swaps.hpp"

namespace moeloom {
namespace {

constexpr Index kFloatBytes = sizeof(float);

/// What one rank has for another, in some buffer.
struct Part {
  int count;
  MPI_Datatype type;
};

MPI_Datatype mpi_type(const float*) {
  return MPI_FLOAT;
}
MPI_Datatype mpi_type(const std::uint16_t*) {
  return MPI_UINT16_T;
}

/// The numbers of one buffer that go to or come from each rank: their places and lengths are inside
/// datatypes, where they are not ints.
template <typename Number>
class Stretches {
 public:
  void add(Index begin, Index count) {
    const Number* const of_type = nullptr;
    owned_.push_back(std::make_unique<StretchType>(begin, count, mpi_type(of_type), sizeof(Number)));
    types_.push_back(owned_.back()->get());
    counts_.push_back(count > 0 ? 1 : 0);
  }
  Part operator[](Index rank) const { return {counts_[at(rank)], types_[at(rank)]}; }

 private:
  std::vector<std::unique_ptr<StretchType>> owned_;
  std::vector<MPI_Datatype> types_;
  std::vector<int> counts_;
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

/// What each rank has for each other and what it takes, by the types. Not by MPI_Alltoallw, which Open MPI
/// makes of persistent requests: over libfabric and Omni-Path (pml cm) these take every datatype as if it
/// began at 0.
template <typename Number>
void exchange_stretches(const Number* sent, const Stretches<Number>& to, Number* received,
                        const Stretches<Number>& from, MPI_Comm comm) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (size == 2) return swap_with(1 - rank, sent, to[1 - rank], received, from[1 - rank], comm);
  std::vector<MPI_Request> requests;
  for (int step = 1; step < size; ++step) {
    const int other = (rank + size - step) % size;
    if (from[other].count != 0)
      check_mpi(MPI_Irecv(received, 1, from[other].type, other, kStretchTag, comm,
                          &requests.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Irecv");
  }
  for (int step = 1; step < size; ++step) {
    const int other = (rank + step) % size;
    if (to[other].count != 0)
      check_mpi(MPI_Isend(sent, 1, to[other].type, other, kStretchTag, comm,
                          &requests.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Isend");
  }
  check_mpi(MPI_Waitall(mpi_count(std::ssize(requests)), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
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

template <typename Number>
void Communicator::reduce_along_tree(std::span<const Number> grads, std::span<const Index> counts_per_rank,
                                     std::span<Number> scratch, std::span<Number> shard) const {
  require(std::ssize(counts_per_rank) == size_, "reduce_scatter_tree needs one count a rank");
  const std::vector<Index> offsets = offsets_of(counts_per_rank);
  const Index mine = counts_per_rank[at(rank_)];
  require(
      std::ssize(grads) == offsets.back() && std::ssize(shard) == mine && std::ssize(scratch) >= mine * size_,
      "reduce_scatter_tree: sizes must follow counts_per_rank");
  if (size_ == 1) {
    if (shard.data() != grads.data()) std::copy(grads.begin(), grads.end(), shard.begin());
    return;
  }
  if constexpr (std::is_same_v<Number, float>) {  // a sum of halves is rounded once, so it is made at once
    if (exchange_way() == ExchangeWay::kSwaps)
      if (const NodeMap& map = *nodes(); map.shared() && map.subtree_ranks() > 0)
        return NodeExchange(*this).sum(grads, counts_per_rank, scratch, shard);
  }
  const auto share_of = [&](Index rank) {
    return grads.subspan(at(offsets[at(rank)]), at(counts_per_rank[at(rank)]));
  };
  const auto part_of = [&](Index rank) { return scratch.subspan(at(rank * mine), at(mine)); };
  std::ranges::copy(share_of(rank_), part_of(rank_).begin());
  const Index bytes = (std::ssize(grads) - mine) * Index{sizeof(Number)};
  if (exchange_way() == ExchangeWay::kSwaps) {
    count_call(bytes);
    swap_pieces(*this, share_of, part_of);
  } else {
    const Call in = call("MPI_Waitall", bytes, only_other());
    Stretches<Number> to;
    Stretches<Number> from;
    for (Index rank = 0; rank < size_; ++rank) {
      to.add(offsets[at(rank)], rank == rank_ ? 0 : counts_per_rank[at(rank)]);
      from.add(rank * mine, rank == rank_ ? 0 : mine);
    }
    exchange_stretches(grads.data(), to, scratch.data(), from, handle_->comm);
  }
  tree_sum_blocks(scratch.data(), size_, mine, mine, shard.data());
}

void Communicator::reduce_scatter_tree(std::span<const float> grads, std::span<const Index> counts_per_rank,
                                       std::span<float> scratch, std::span<float> shard) const {
  reduce_along_tree(grads, counts_per_rank, scratch, shard);
}

void Communicator::reduce_scatter_tree(std::span<const std::uint16_t> grads,
                                       std::span<const Index> counts_per_rank,
                                       std::span<std::uint16_t> scratch,
                                       std::span<std::uint16_t> shard) const {
  reduce_along_tree(grads, counts_per_rank, scratch, shard);
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

template <typename Number>
void Communicator::gather_stretches(std::span<Number> values, std::span<const Index> counts_per_rank) const {
  require(std::ssize(counts_per_rank) == size_, "all_gather_stretches needs one count a rank");
  const std::vector<Index> offsets = offsets_of(counts_per_rank);
  require(std::ssize(values) == offsets.back(), "all_gather_stretches: sizes must follow counts_per_rank");
  if (size_ == 1) return;
  const auto stretch_of = [&](Index rank) {
    return values.subspan(at(offsets[at(rank)]), at(counts_per_rank[at(rank)]));
  };
  const Index bytes = counts_per_rank[at(rank_)] * Index{sizeof(Number)} * (size_ - 1);
  if (exchange_way() == ExchangeWay::kSwaps) {
    if (nodes()->shared())
      return NodeExchange(*this).gather([&](Index rank) { return std::as_writable_bytes(stretch_of(rank)); });
    count_call(bytes);
    return swap_pieces(
        *this, [&](Index) { return stretch_of(rank_); }, stretch_of);
  }
  if (size_ == 2) {
    const Call in = call("MPI_Allgatherv", bytes, only_other());
    Stretches<Number> parts;
    for (Index rank = 0; rank < size_; ++rank) parts.add(offsets[at(rank)], counts_per_rank[at(rank)]);
    return swap_with(1 - rank_, values.data(), parts[rank_], values.data(), parts[1 - rank_], handle_->comm);
  }
  if (offsets.back() > std::numeric_limits<int>::max()) {  // too far apart for MPI_Allgatherv
    for (int root = 0; root < size_; ++root) broadcast(std::as_writable_bytes(stretch_of(root)), root);
    return;
  }
  const Call in = call("MPI_Allgatherv", bytes);
  const MPI_Datatype type = mpi_type(values.data());
  check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, type, values.data(), mpi_counts(counts_per_rank).data(),
                           mpi_counts(offsets).data(), type, handle_->comm),
            "MPI_Allgatherv");
}

void Communicator::all_gather_stretches(std::span<float> values,
                                        std::span<const Index> counts_per_rank) const {
  gather_stretches(values, counts_per_rank);
}

void Communicator::all_gather_stretches(std::span<std::uint16_t> values,
                                        std::span<const Index> counts_per_rank) const {
  gather_stretches(values, counts_per_rank);
}

}  // namespace moeloom
