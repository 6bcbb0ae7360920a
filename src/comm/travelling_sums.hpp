// Sums of stretches of gradients over ranks that travel while backward goes on; finish() at once is a
// reduce-scatter along the tree.
//
// A stretch leaves when its gradients are complete. A few are under way at once, in the order in which they
// were begun, which is the same on every rank; MPI moves them in its calls alone.
#pragma once

#include "comm/travelling_sum.hpp"

#include <deque>
#include <vector>

namespace moeloom {

class TravellingSums {
 public:
  /// Each that is under way holds what it receives.
  explicit TravellingSums(Index at_once) : at_once_(static_cast<std::size_t>(at_once)) {}

  /// Every rank of `stretch.ranks` begins the same ones in the same order.
  void begin(StretchOfGradients stretch);
  /// Lets messages move on without waiting; of what has arrived, a little is added up.
  void progress();
  /// Waits for all.
  void finish();
  bool idle() const { return waiting_.empty() && travelling_.empty(); }

 private:
  /// Begins as many of those that wait as may be under way.
  void send_off();
  void pass_on();
  void end_first();

  std::size_t at_once_;
  std::deque<StretchOfGradients> waiting_;
  std::deque<TravellingSum> travelling_;
  std::vector<Matrix> memory_;
  bool adds_up_ = false;
};

}  // namespace moeloom
