#include "run/start/run_lock.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <array>
#include <ctime>
#include <thread>
#include <unistd.h>

namespace moeloom {
namespace {

constexpr const char* kLockFile = "run.lock";

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%F %T UTC", gmtime_r(&now, &parts));
  return text.data();
}

std::string holder_text() {
  Document holder;
  holder.set("host", host_name());
  holder.set("pid", static_cast<Index>(getpid()));
  holder.set("since", now_text());
  return holder.dump(-1);
}

/// "process 4711 on host node3 since 2026-11-22 10:00:00 UTC"
std::string described(const std::string& holder) {
  try {
    const Document said = Document::parse(holder, kLockFile);
    return "process " + std::to_string(said.integer("pid")) + " on host " + said.text("host") + " since " +
           said.text("since");
  } catch (const IoError&) {
    return "a process that does not say which it is";
  }
}

FileLock take(const std::filesystem::path& run, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLook{100};
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    if (std::optional<FileLock> lock = FileLock::take(run / kLockFile)) return std::move(*lock);
    if (patience.count() > 0) std::this_thread::sleep_for(kLook);
  } while (std::chrono::steady_clock::now() < end);
  throw ConfigError({run.string() + " is in use by another job: " + described(said_in(run / kLockFile)) +
                     "; wait for it or stop it, or choose another --run"});
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
  return Event().with("lock", "taken over").with("reason", described(lock_.left()) + " is gone");
}

}  // namespace moeloom
