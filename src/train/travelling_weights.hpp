// New weights that their owners send to all who hold them, while the next forward goes on.
//
// Stretches leave in the order in which a forward reads them, which is the same on every rank; a few are
// under way at once, so that MPI keeps no more of them. MPI moves them in its calls alone.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/messages.hpp"

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
    explicit Travelling(const Stretched& stretch);

    Index place;
    Messages messages;
  };

  /// Begins as many of those that wait as may be under way.
  void send_off();
  void take_first();

  std::size_t at_once_;
  std::deque<Stretched> waiting_;
  std::deque<Travelling> travelling_;
};

}  // namespace moeloom
