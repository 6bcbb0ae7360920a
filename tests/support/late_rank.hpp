// A rank that comes late, and others that say on their boards that they wait for it.
#pragma once

#include "comm/node_memory.hpp"
#include "moeloom/comm/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace moeloom::testing {

/// Of ranks of one node, all of which make one.
class LateRank {
 public:
  explicit LateRank(Communicator& world) { world.report_to(board_); }

  /// Keeps `late` until a thread of each of `waiting` has read from that rank's board that it waits in `call`
  /// for `late`. Every rank calls it, and then begins.
  void hold(const Communicator& world, int late, const std::vector<int>& waiting, const std::string& call) {
    memory_ = std::make_shared<NodeMemory>(world.split_by_node(), sizeof(std::int64_t));
    block_ = std::make_unique<NodeBlock>(memory_, sizeof(std::atomic<int>));
    auto* const saw = new (block_->data()) std::atomic<int>(0);
    const std::int64_t mine = block_->offset();
    const std::vector<std::int64_t> places = world.all_gather(std::span(&mine, 1));
    if (world.rank() == late) {
      for (const int rank : waiting)
        while (reinterpret_cast<std::atomic<int>*>(memory_->address(rank, places[at(rank)]))->load() == 0)
          std::this_thread::yield();
    } else if (std::ranges::count(waiting, world.rank()) > 0) {
      reader_ = std::jthread([this, saw, late, call] {
        for (Position seen; seen.call != call || seen.waits_for != late; std::this_thread::yield())
          seen = board_.read();
        saw->store(1);
      });
    }
  }

  const PositionBoard& board() const { return board_; }

 private:
  PositionBoard board_;
  std::shared_ptr<NodeMemory> memory_;
  std::unique_ptr<NodeBlock> block_;
  std::jthread reader_;
};

}  // namespace moeloom::testing
