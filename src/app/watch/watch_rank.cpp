#include "watch/watch_rank.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include "watch/leftovers.hpp"

namespace moeloom {
namespace {

using Clock = WakeClock::Clock;

constexpr auto kLook = std::chrono::milliseconds(250);

/// A signal, as that of the rank's end, cuts it short.
void look_again() {
  usleep(std::chrono::microseconds(kLook).count());
}

void show_as(const std::string& name, std::span<char> command_line) {
  std::ranges::fill(command_line, '\0');
  std::ranges::copy_n(name.begin(), std::min(std::ssize(name), std::ssize(command_line)),
                      command_line.begin());
}

/// When the thread that uses the disk was last heard of.
using Beat = std::atomic<Clock::time_point>;

/// In a thread of its own, because the disk of the run's folder may hang.
void ask_about(const PositionBoard& board, const WatchOrder& order, pid_t rank,
               const std::shared_ptr<Beat>& beat, const std::function<void()>& end_rank) {
  const auto pause = [beat] {
    beat->store(Clock::now());
    look_again();
  };
  std::optional<StallWatch> watch;
  for (int seen = 0; getppid() == rank; pause()) {
    const int orders = order.orders;
    if (orders == 0) continue;
    if (std::exchange(seen, orders) != orders) watch.emplace(board, order, rank, pause);
    try {
      if (watch->look()) end_rank();
    } catch (const std::exception&) {
      // A disk that refuses for now: the next look tries again.
    }
  }
}

/// Ends a rank that stands still while the disk hangs, so that nobody can be asked.
class DiskGuard {
 public:
  DiskGuard(const PositionBoard& board, const WatchOrder& order, pid_t rank, std::shared_ptr<Beat> beat)
      : board_(board), order_(order), rank_(rank), beat_(std::move(beat)), last_(board.read()) {}

  /// -> whether the rank is to end, after that was said.
  bool look() {
    const auto now = Clock::now();
    const Position position = board_.read();
    if (wake_.slept() || position.moves != last_.moves) moved_ = now;
    last_ = position;
    const double limit = limit_at(position, order_), still = seconds(now - moved_);
    if (said_ || seconds(now - beat_->load()) < patience(limit) || still < limit + patience(limit))
      return false;
    said_ = true;
    std::cerr << "[error] stalled: rank " + std::to_string(order_.rank) + " (process " +
                     std::to_string(rank_) + " on " + order_.host.data() + ") has not moved for " +
                     std::to_string(std::lround(still)) + " s in " + text_of(position) +
                     ", and the disk of " + order_.folder.data() + " does not answer\n"
              << std::flush;
    return true;
  }

 private:
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  const PositionBoard& board_;
  const WatchOrder& order_;
  const pid_t rank_;
  const std::shared_ptr<Beat> beat_;
  Position last_;
  WakeClock wake_;
  Clock::time_point moved_ = Clock::now();
  bool said_ = false;  // a rank that is stuck in the kernel cannot be ended twice
};

/// A rank whose launcher was killed has nobody left to end it. Ranks of Open MPI 4 hear of that and end
/// within a second; those of 5 go on, as long as they reach each other.
class LauncherGuard {
 public:
  /// -> whether the launcher (0: not known) has been gone for so long.
  bool look(pid_t launcher) {
    const Clock::time_point now = Clock::now();
    if (launcher == 0 || !is_ending(launcher)) seen_ = now;
    return now - seen_ > std::chrono::seconds(2);
  }

 private:
  Clock::time_point seen_ = Clock::now();
};

/// ended: since the epoch. The disk is given a second: the caller ends, and takes the thread along.
void leave_last_place(const PositionBoard& board, const WatchOrder& order,
                      std::chrono::duration<double> ended) {
  std::packaged_task<void()> leave([&board, &order, ended] {
    const auto folder = std::filesystem::path(order.folder.data()) / kEndedFolder;
    std::error_code ignored;
    std::filesystem::create_directory(folder, ignored);
    std::ofstream(folder / ("rank-" + std::to_string(order.rank)))
        << std::fixed << ended.count() << ' ' << order.rank << ' ' << order.host.data() << ' '
        << text_of(board.read()) << '\n';
  });
  const std::future<void> left = leave.get_future();
  std::thread(std::move(leave)).detach();
  left.wait_for(std::chrono::seconds(1));
}

}  // namespace

void watch_rank(const PositionBoard& board, WatchOrder& order, pid_t rank, std::span<char> command_line,
                const std::function<void()>& end_rank) {
  show_as("moeloom-watch", command_line);
  const auto beat = std::make_shared<Beat>(Clock::now());
  DiskGuard guard(board, order, rank, beat);
  std::thread([&board, &order, rank, beat, end_rank] {
    ask_about(board, order, rank, beat, end_rank);
  }).detach();
  LauncherGuard launcher;
  Leftovers left;
  bool shown = false, found = false;
  for (; getppid() == rank; look_again()) {
    if (order.orders == 0) continue;
    if (!std::exchange(shown, true))
      show_as("moeloom-watch " + std::string(order.folder.data()), command_line);
    if (!found) {
      found = order.settled;
      if (Leftovers now = find_leftovers(rank); !now.segments.empty() || now.launcher != 0)
        left = std::move(now);
      if (found) order.noted = true;
    }
    if (guard.look() || launcher.look(left.launcher)) end_rank();
  }
  const auto ended = std::chrono::system_clock::now().time_since_epoch();
  if (order.orders > 0) leave_last_place(board, order, ended);  // at first: the launcher may ask at once
  remove_leftovers(left);
}

}  // namespace moeloom
