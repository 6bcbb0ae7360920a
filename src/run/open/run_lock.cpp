#include "open/run_lock.hpp"

#include "moeloom/base/errors.hpp"

#include <thread>

#include "data/lock_holder.hpp"

namespace moeloom {
namespace {

constexpr const char* kLockFile = "run.lock";

FileLock take(const std::filesystem::path& run, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLook{100};
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    if (std::optional<FileLock> lock = FileLock::take(run / kLockFile)) return std::move(*lock);
    if (patience.count() > 0) std::this_thread::sleep_for(kLook);
  } while (std::chrono::steady_clock::now() < end);
  throw ConfigError({run.string() +
                     " is in use by another job: " + described_holder(said_in(run / kLockFile)) +
                     "; wait for it or stop it, or choose another `run`"});
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run, std::chrono::milliseconds patience)
    : lock_(take(run, patience)), path_(run / kLockFile) {
  lock_.say(holder_text());
}

std::optional<Event> RunLock::warning() const {
  if (!lock_.held())
    return Event()
        .with("lock", "none")
        .with("reason", "the file system of " + path_.string() +
                            " has no locks: two jobs in one run would not be "
                            "noticed");
  if (lock_.left().empty()) return std::nullopt;
  return Event().with("lock", "taken over").with("reason", described_holder(lock_.left()) + " is gone");
}

}  // namespace moeloom
