// Exchanges over TCP: each two ranks of a group swap what they have for each other, piece by piece.
//
// A pair cuts both of its messages into the same number of pieces, and a piece leaves when the other's piece
// before it has come; a few may leave ahead of that, always of the pairs that are furthest behind. So no
// piece waits for an answer, as long messages of Open MPI do; all pairs come through at about the same time,
// where links that are through early would idle for the rest; a switch never holds much for a host; and a
// rank that comes late finds few pieces waiting in memory. Where one side of a pair has less, its pieces are
// shorter, and where it has nothing, empty: they say that the other's have come.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include "mpi_call.hpp"

namespace moeloom {

/// Both sides of a pair know both sizes. Buffers must live and be left alone until finish(). Throws MpiError.
class PieceSwaps {
 public:
  explicit PieceSwaps(const Communicator& ranks);
  PieceSwaps(const PieceSwaps&) = delete;
  PieceSwaps& operator=(const PieceSwaps&) = delete;
  ~PieceSwaps();

  /// Once a rank, never this one.
  void add(Index rank, std::span<const std::byte> sent, std::span<std::byte> received);
  /// Moves all that was added. Collective over the ranks that were.
  void finish();

 private:
  struct Pair {
    int rank;
    std::span<const std::byte> sent;
    std::span<std::byte> received;
    Index pieces;
    Index left = 0;     // pieces that were given to MPI
    Index awaited = 0;  // pieces that MPI was told to take
    Index come = 0;     // of those, pieces that it has
  };

  MPI_Request& request(Index pair, Index slot) { return requests_[at(pair * slots() + slot)]; }
  /// Of a pair in requests_: first the pieces that come, then those that leave.
  Index slots() const { return 3 * window_; }
  void await_next(Index pair, Index slot);
  /// For the pair's next piece; null: it may not leave yet.
  MPI_Request* way_out(Index pair);
  /// Of the pair that is furthest behind of those that may send; false: none may.
  bool send_next();
  void send_what_may_leave();
  /// Waits until something has come or left.
  void take_some();
  /// The first rank whose pieces have not all come, or that has not taken all; -1: none is awaited.
  Index awaited_rank() const;

  const Communicator* ranks_;
  Index piece_bytes_;
  Index window_;  // pieces of a pair that may be under way one way
  Index spare_;   // pieces that may still leave ahead of the other's
  std::vector<Pair> pairs_;
  std::vector<MPI_Request> requests_;  // [pairs, slots]
  std::vector<int> ended_;
};

}  // namespace moeloom
