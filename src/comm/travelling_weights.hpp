// New weights that their owners send to all who hold them, while the next forward goes on; await() at once is
// a gather.
//
// Stretches leave in the order in which a forward reads them, which is the same on every rank; a few are
// under way at once, so that MPI keeps no more of them. To a node of several ranks a part goes once: the rank
// that takes it passes it on. MPI moves all of it in its calls alone.
#pragma once

#include "comm/messages.hpp"
#include "moeloom/comm/communicator.hpp"

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace moeloom {

class TravellingWeights {
 public:
  explicit TravellingWeights(Index at_once) : at_once_(static_cast<std::size_t>(at_once)) {}

  struct Stretched {
    const Communicator* ranks = nullptr;
    std::vector<std::span<std::byte>> parts;  // what each rank owns; left alone until it has arrived
    Index place = 0;                          // when a forward reads it: never less than the one before
    const NodeMap* held_by = nullptr;  // nodes whose ranks hold the parts together; null: each has its own
  };

  /// Every rank of `stretch.ranks` begins the same ones in the same order; this rank's part is filled.
  void begin(Stretched stretch);
  /// Lets messages move on without waiting.
  void progress();
  /// Waits for all up to and with this place.
  void await(Index place);
  bool idle() const { return waiting_.empty() && travelling_.empty(); }

 private:
  struct Travelling {
    explicit Travelling(Stretched stretch);
    /// Of those that this rank takes for its node, what has come goes to the others there, in order. Whether
    /// all has.
    bool pass_on();
    bool all_ended() { return pass_on() && from_owners.all_ended() && from_takers.all_ended(); }
    void await();

    Stretched of;
    /// A rank that sends its own part of several stretches passes on another's of the first only later.
    Messages from_owners, from_takers;
    struct Taken {
      Index owner, letter;  // of from_owners
    };
    std::vector<Taken> taken;  // what this rank passes on, by owner
    std::size_t passed_on = 0;
  };

  /// Begins as many of those that wait as may be under way.
  void send_off();
  void pass_on();
  void end_first();

  std::size_t at_once_;
  std::deque<Stretched> waiting_;
  std::deque<Travelling> travelling_;
};

}  // namespace moeloom
