// What a watcher asks and answers: it looks at its rank a few times a second, and when nothing moves finds
// out why, with the watchers of the other ranks, through files in the run's folder.
#pragma once

#include "moeloom/base/position_board.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "watch/stall.hpp"

namespace moeloom {

/// From the rank to its watcher. What is no atomic stands before `orders` counts it.
struct WatchOrder {
  std::atomic<int> orders{0};        // how often the rank has said what to watch; 0: nothing yet
  std::atomic<bool> settled{false};  // MPI has started, and the run's folder is this job's
  std::atomic<bool> noted{false};    // the watcher's answer: it knows what the rank would leave on the node
  std::atomic<double> step_seconds{0}, file_seconds{0}, start_seconds{0};
  std::atomic<double> longest_step{0};
  Index rank = 0, world = 1;
  std::array<char, 256> host{};
  std::array<char, 4096> folder{};  // of the run
};

/// In the run's folder: where ranks were that have ended and had not said so, "TIME RANK HOST PLACE" in a
/// file each. Of a job's ranks, the first is the one whose end the others followed: launch/go-on.sh names it.
inline constexpr const char* kEndedFolder = "ended";

/// Seconds that a rank may stay at `position`.
double limit_at(const Position& position, const WatchOrder& order);
/// Seconds to wait for a watcher of which nothing is heard, or for a disk.
double patience(double limit);

/// Sees what a machine that slept, or a job that was suspended with its watchers, lost of the time.
class WakeClock {
 public:
  using Clock = std::chrono::steady_clock;
  /// Called a few times a second -> whether much more time than that has passed.
  bool slept();

 private:
  Clock::time_point looked_ = Clock::now();
};

/// Of one rank, as the order was when it was made.
class StallWatch {
 public:
  /// pause: called between two looks.
  StallWatch(const PositionBoard& board, const WatchOrder& order, pid_t process, std::function<void()> pause);

  /// -> whether the job is to end, after what was found was said. It uses the disk, and hangs if that does.
  bool look();

 private:
  using Clock = WakeClock::Clock;

  void forget_sleep();
  void forget_question();
  bool has_moved();
  bool wait(std::chrono::seconds time);
  std::filesystem::path file_of(Index rank) const;
  RankPosition here() const;
  void clean();
  void answer() const;
  void ask();
  std::vector<std::optional<RankPosition>> all() const;
  bool decide();
  void say(const Stall& stall, const std::vector<std::optional<RankPosition>>& positions) const;

  const PositionBoard& board_;
  const WatchOrder& order_;
  const pid_t process_;
  const std::function<void()> pause_;
  const Index rank_, world_;
  const std::string host_;
  const std::filesystem::path run_, folder_;
  Position last_;
  WakeClock wake_;
  Clock::time_point moved_ = Clock::now();
  std::optional<Clock::time_point> asked_;   // since when this rank has stalled and asked
  std::optional<std::vector<Index>> found_;  // ranks that the others waited for, when they were last asked
  Index looks_ = 0;
  bool cleaned_ = false;
};

}  // namespace moeloom
