// One job in a run's folder at a time.
#pragma once

#include "io/file_lock.hpp"

#include <chrono>

#include "record/log.hpp"

namespace moeloom {

/// RUN/run.lock, held by rank 0 as long as it lives; in it stand the host, the process and the time, for the
/// message to others.
class RunLock {
 public:
  /// For a job that is ending: ranks whose launcher was killed outlive it for a moment.
  static constexpr std::chrono::milliseconds kPatience{10'000};

  /// Throws IoError; ConfigError that says who holds it, after having waited so long for it.
  explicit RunLock(const std::filesystem::path& run, std::chrono::milliseconds patience = kPatience);

  /// What a log should say: that a dead job's lock was taken over, or that the filesystem has none.
  std::optional<Event> warning() const;

 private:
  FileLock lock_;
  std::filesystem::path path_;
};

}  // namespace moeloom
