#include "comm/meeting.hpp"

#include "comm/node_memory.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace moeloom {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// A wait that begins with it. Peers that are under way come within kLooks seconds; for those that compute
/// meanwhile the processor is left to others, by sleeps of a hundredth of the time waited until then.
class Wait {
 public:
  /// never passed after 0 seconds.
  explicit Wait(double seconds) : left_(seconds), never_(seconds <= 0) {}
  /// A gap between two looks, in which this process was stopped, counts as one second at most: others may
  /// have come in it.
  bool passed() {
    const Clock::time_point now = Clock::now();
    const double gap = std::min(Seconds(now - last_).count(), 1.0);
    last_ = now;
    waited_ += gap;
    left_ -= gap;
    return !never_ && left_ < 0;
  }
  void pause() {
    if (waited_ < kLooks) return looks_.pause();
    std::this_thread::sleep_for(Seconds(std::clamp(waited_ / 100, kShortest, kLongest)));
  }

 private:
  static constexpr double kLooks = 5e-3, kShortest = 50e-6, kLongest = 200e-6;
  double left_;
  bool never_;
  double waited_ = 0;
  Clock::time_point last_ = Clock::now();
  NodeWait looks_{nullptr};
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
  for (Wait wait(seconds); !messages_.all_ended(); wait.pause()) {
    if (!wait.passed()) continue;
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
