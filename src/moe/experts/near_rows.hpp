// Rows that are in place before those that cross nodes: their products fill the wait for the others.
//
// An expert's rows are then multiplied in pieces, by source, which only a kernel may do whose rows keep their
// bits. A piece reads the expert's weights once more, so there are pieces only while a rank would wait.
#pragma once

#include "moe/dispatch/dispatcher.hpp"
#include "moe/experts/experts.hpp"

namespace moeloom {

/// Of one pass; compute(piece) multiplies the rows of an ExpertChunk. Each row is computed once.
class NearRows {
 public:
  NearRows(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip);

  /// Near rows of one expert of `chunk` or a later one; false: there are none left.
  template <typename Compute>
  bool compute_next(Index chunk, const Compute& compute) {
    const std::optional<ExpertChunk> next = take(chunk);
    if (next) compute(*next);
    return next.has_value();
  }
  /// What is not yet computed of a chunk whose rows are all there.
  template <typename Compute>
  void compute_rest(Index chunk, const Compute& compute) {
    for (const ExpertChunk& piece : rest_of(chunk)) compute(piece);
  }

 private:
  std::optional<ExpertChunk> take(Index chunk);
  std::vector<ExpertChunk> rest_of(Index chunk);
  /// Rows of one expert from some sources.
  ExpertChunk piece(Index expert, Stretch sources) const;

  Dispatcher& dispatcher_;
  const RoundTrip& trip_;
  GroupedRows rows_;
  Stretch near_ = {};                // sources; none: nothing is split
  std::vector<Index> first_rows_;    // [e + 1] of the experts
  std::vector<std::uint8_t> taken_;  // [e]: whether its near rows are computed
  Index next_ = 0;                   // all experts before it are taken, or are to be computed whole
  bool landed_ = false;
};

}  // namespace moeloom
