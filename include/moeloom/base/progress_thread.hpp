// A thread that sees to what stands (base/meanwhile.hpp) while the thread that made it computes.
//
// Polling between tasks takes the time of a computing thread, and a message that comes in the middle of a
// task waits for its end. Of the two threads one at a time has the turn: the computing one but for the time
// of its loops of tasks. So works need no locks of their own, and MPI meets its threads one after the other
// (MPI_THREAD_SERIALIZED), without the locks in each of its calls that MPI_THREAD_MULTIPLE takes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

namespace moeloom {

struct StandIn;

/// Lives on the thread that made it, which has one at most. It computes works alone, as one thread. Where it
/// gets no processor in time, the computing thread does them between its tasks as if there were none.
class ProgressThread {
 public:
  struct Settings {
    std::optional<int> processor = {};  // that it is bound to; none: where its maker may run
    std::chrono::nanoseconds between_looks = kBetweenLooks;
  };
  /// What a socket holds for so long at 10 Gbit/s is less than Linux lets it hold.
  static constexpr std::chrono::microseconds kBetweenLooks{50};

  /// Throws std::system_error where it may not run on the processor.
  explicit ProgressThread(const Settings& settings);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// How often it has looked after all that stands. For its maker, outside of tasks.
  long looks() const;

 private:
  std::unique_ptr<StandIn> shared_;
  std::thread thread_;
};

}  // namespace moeloom
