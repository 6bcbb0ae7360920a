#include "comm/meeting.hpp"

#include "comm/node_memory.hpp"

#include <algorithm>
#include <chrono>

namespace moeloom {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Of a wait that began with it; never after 0 seconds. A gap between two looks, in which this process was
/// stopped, counts as one second at most: others may have come in it.
class Deadline {
 public:
  explicit Deadline(double seconds) : left_(seconds), never_(seconds <= 0) {}
  bool passed() {
    if (never_) return false;
    const Clock::time_point now = Clock::now();
    left_ -= std::min(Seconds(now - last_).count(), 1.0);
    last_ = now;
    return left_ < 0;
  }

 private:
  double left_;
  bool never_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace

std::vector<Index> Meeting::meet(std::span<const std::byte> mine, double seconds) {
  const Index size = ranks_->size(), me = ranks_->rank();
  bytes_ = std::ssize(mine);
  mine_.assign(mine.begin(), mine.end());
  told_.resize(at(size * bytes_));
  std::ranges::copy(mine, told_.begin() + me * bytes_);
  const auto place_of = [&](Index rank) { return std::span(told_).subspan(at(rank * bytes_), at(bytes_)); };
  // Neighbours first, so that not all write to rank 0 at once.
  for (Index step = 1; step < size; ++step)
    messages_.receive_bytes(static_cast<int>((me + size - step) % size), place_of((me + size - step) % size));
  for (Index step = 1; step < size; ++step) messages_.send_bytes(static_cast<int>((me + step) % size), mine_);
  Deadline deadline(seconds);
  for (NodeWait wait(nullptr); !messages_.all_ended(); wait.pause()) {
    if (!deadline.passed()) continue;
    if (std::vector<Index> ranks = missing(); !ranks.empty()) return ranks;
  }
  messages_.finish();
  return {};
}

std::vector<Index> Meeting::missing() {
  const Index size = ranks_->size(), me = ranks_->rank();
  std::vector<Index> ranks;
  for (Index step = 1; step < size; ++step)
    if (!messages_.arrived(step - 1, 1)) ranks.push_back((me + size - step) % size);
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace moeloom
