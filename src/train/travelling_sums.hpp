// Sums of stretches of gradients over ranks that travel while backward goes on.
//
// A stretch leaves when its gradients are complete: each rank sends every other one what that one owns, and
// adds up, along the tree, what it receives. A few are under way at once, in the order in which they were
// begun, which is the same on every rank; MPI moves them in its calls alone.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/messages.hpp"

#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace moeloom {

class TravellingSums {
 public:
  /// Each that is under way holds what it receives.
  explicit TravellingSums(Index at_once) : at_once_(static_cast<std::size_t>(at_once)) {}

  struct Stretched {
    const Communicator* ranks = nullptr;
    std::span<float> gradients;      // left alone until `done`
    std::span<const Index> offsets;  // [ranks + 1], of what each rank owns
    /// The owned part holds the sum.
    std::function<void()> done;
  };

  /// Every rank of `stretch.ranks` begins the same ones in the same order.
  void begin(Stretched stretch);
  /// Lets messages move on without waiting; what has arrived is added up.
  void progress();
  /// Waits for all.
  void finish();
  bool idle() const { return waiting_.empty() && travelling_.empty(); }

 private:
  struct Travelling {
    Travelling(Stretched stretch, Matrix memory);

    Stretched of;
    Stretch mine;     // of the gradients
    Matrix received;  // [ranks, owned]
    Messages messages;
  };

  /// Begins as many of those that wait as may be under way.
  void send_off();
  void add_up(Travelling& sum);

  std::size_t at_once_;
  std::deque<Stretched> waiting_;
  std::deque<Travelling> travelling_;
  std::vector<Matrix> memory_;
  bool adds_up_ = false;
};

}  // namespace moeloom
