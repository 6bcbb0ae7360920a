// A group of ranks and the few collectives that training needs.
//
// Every member function that moves data is collective: all ranks of the communicator call it, in the same
// order, with zero elements if need be, on the thread that MPI calls main. What moves data throws MpiError
// with the call, MPI's text and the world rank; ShapeError on a rank whose sizes do not fit, or beyond the
// int of MPI. Both may come on one rank while the others wait, and then the job has to end (abort_all_ranks).
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/position_board.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

/// One handle of MPI, kept out of the headers.
struct CommunicatorHandle;
struct NodeMap;

/// What this rank has handed to MPI since the communicator was made, as the collectives' definitions count it
/// (an all-gather of n bytes: n to each other rank), and in how many calls. A rank alone counts nothing.
struct Traffic {
  std::int64_t message_bytes = 0;
  std::int64_t calls = 0;
};

/// Moved, not copied. What is made of it (a Mesh, a split) is a communicator of its own and may outlive it.
class Communicator {
 public:
  /// MPI_COMM_WORLD itself, not a copy; throws MpiError where MPI does not run (Session). Its errors return
  /// from now on (MPI_ERRORS_RETURN). No collective.
  static Communicator world();
  /// For adopt(), which is how a guest's communicator becomes one of these.
  static Communicator of(std::unique_ptr<CommunicatorHandle> handle);
  /// This process alone: every collective is a local copy and MPI need not be running.
  static Communicator self();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Traffic traffic() const { return traffic_; }

  /// MPI_Comm_split: ranks with the same color (>= 0), ordered by key, then by rank. Collective.
  Communicator split(int color, int key) const;
  /// The ranks that share this rank's memory (MPI_Comm_split_type SHARED), in this order. Collective.
  Communicator split_by_node() const;

  /// Shows on the board, which must outlive it, in which call of MPI this rank is and whom it waits for; so
  /// do communicators that are split from this one from now on. self() shows nothing. No collective.
  void report_to(PositionBoard& board);
  PositionBoard* board() const { return board_; }  // null: it reports to none
  /// The rank in MPI_COMM_WORLD of one of these ranks, as the board shows it; -1 where there is no board, or
  /// for -1.
  Index shown_rank(Index rank) const { return board_ == nullptr || rank < 0 ? -1 : world_ranks_[at(rank)]; }

  void barrier() const;
  /// mine [n] -> [size, n], rank by rank. The same n on every rank, which is not checked.
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) const;
  std::vector<double> all_gather(std::span<const double> mine) const;
  /// Any length per rank -> one text per rank, on every rank; up to 2^31 - 1 bytes in all.
  std::vector<std::string> all_gather_text(const std::string& mine) const;
  /// values[i] becomes the sum over ranks, exact. The same length on every rank, here and below.
  void all_sum(std::span<std::int64_t> values) const;
  /// values[i] becomes the sum over the ranks before this one, exact; 0 on the first.
  void sum_before(std::span<std::int64_t> values) const;
  /// values[i] becomes the sum over ranks, added along one binary tree over the ranks: sum[lo, hi) = sum[lo,
  /// mid) + sum[mid, hi), mid = lo + the largest power of two below hi - lo. The same bits on every rank.
  void all_sum(std::span<double> values) const;
  /// The largest of all ranks' values; NaN if any of them is.
  double all_max(double value) const;
  /// What `root` has to everyone, in place; the same length on every rank. 2^31 bytes are no limit.
  void broadcast(std::span<std::byte> bytes, int root) const;
  void broadcast(std::span<float> values, int root) const;

  /// Asks which ranks share a node, once; what was split or adopted knows from the start. Collective.
  void learn_nodes() const;
  /// On which nodes its ranks are, for the library itself; null: all on one, or nobody asked yet.
  const NodeMap* nodes() const;
  /// For tests on one machine: exchanges go from now on as if the ranks were on so many nodes (at most one a
  /// rank), neighbours on one, and so do those of groups that are split from it. Collective.
  void pretend_nodes(Index nodes);

  /// sent [size, n] -> received [size, n], block i to and from rank i. The same n on every rank, which is not
  /// checked.
  void all_to_all(std::span<const std::int64_t> sent, std::span<std::int64_t> received) const;
  /// Rows to their ranks: rows [sum(sent_per_rank), C] in rank order -> received [sum(received_per_rank), C].
  /// Counts are [size]; each is what the other side gives too, which is not checked. 2^31 bytes are no limit.
  /// Both views contiguous, the same C on every rank.
  void all_to_all_rows(ConstMatrixView rows, std::span<const Index> sent_per_rank, MatrixView received,
                       std::span<const Index> received_per_rank) const;

  /// values [sum(counts_per_rank)] on every rank -> shard [counts_per_rank[rank()]]: the sum over ranks of
  /// this rank's stretch. The same counts [size] on every rank. Of integers, whose sum has no order.
  void reduce_scatter(std::span<const std::int64_t> values, std::span<const Index> counts_per_rank,
                      std::span<std::int64_t> shard) const;

 private:
  friend class Messages;
  friend class PendingSum;
  /// Takes over the handle and asks MPI for rank and size.
  explicit Communicator(std::unique_ptr<CommunicatorHandle> handle);

  /// Shown on the board from its making to its end.
  class Call {
   public:
    Call(PositionBoard* board, const char* name, Index waits_for) : board_(board) {
      if (board_ != nullptr) board_->enter_call(name, waits_for);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      if (board_ != nullptr) board_->enter_call(nullptr);
    }

   private:
    PositionBoard* board_;
  };
  /// A call of MPI begins, named as MPI does, in which this rank waits for one of these (-1: for all).
  [[nodiscard]] Call waiting_in(const char* name, Index rank = -1) const;
  /// The same; the bytes are what this rank sends.
  [[nodiscard]] Call call(const char* name, Index message_bytes, Index rank = -1) const;
  void count_call(Index message_bytes) const;
  void pretend_on(std::int64_t my_node);
  Communicator with_board_of(const Communicator& whole) &&;

  std::unique_ptr<CommunicatorHandle> handle_;  // none: self()
  int rank_ = 0;
  int size_ = 1;
  mutable Traffic traffic_;
  PositionBoard* board_ = nullptr;
  std::vector<Index> world_ranks_;  // [size], where there is a board
};

/// Runs `phase` on every rank of `comm`, then compares notes: if it threw a std::exception anywhere, every
/// rank throws AgreedError with the distinct messages, each with the ranks that met it (left out where all
/// met the same). Collective; `phase` itself may be collective only if it fails on every rank alike. For
/// set-up and files, where one rank may fail alone.
template <typename Phase>
void agree(const Communicator& comm, Phase&& phase);

/// The comparing half of agree(): my_error is empty where all went well. The cause of the lowest rank that
/// failed counts. Collective; throws AgreedError.
void throw_if_any_failed(const Communicator& comm, const std::string& my_error,
                         Cause my_cause = Cause::kRequest);

template <typename Phase>
void agree(const Communicator& comm, Phase&& phase) {
  std::string error;
  Cause cause = Cause::kRequest;
  try {
    phase();
  } catch (const std::exception& e) {
    error = e.what();
    cause = cause_of(e);
    if (error.empty()) error = "unknown error";
  }
  throw_if_any_failed(comm, error, cause);
}

}  // namespace moeloom
