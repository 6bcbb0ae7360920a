#include "io/output_lock.hpp"

#include "base/host_name.hpp"
#include "moeloom/base/errors.hpp"

#include <string>
#include <unistd.h>
#include <utility>

namespace moeloom {
namespace {

[[noreturn]] void throw_taken(const std::filesystem::path& output, const std::filesystem::path& file) {
  const std::string holder = said_in(file);
  throw ConfigError({output.string() + " is being written by another process" +
                     (holder.empty() ? "" : ", " + holder) +
                     "; wait until it ends or stop it, or choose another name"});
}

}  // namespace

OutputLock::OutputLock(const std::filesystem::path& output, std::filesystem::path file)
    : path_(std::move(file)) {
  constexpr int kTries = 100;  // some filesystems have no numbers that stay
  for (int i = 0; i < kTries && !(lock_ && lock_->is_at(path_)); ++i) {
    auto taken = FileLock::take(path_);  // its holder before may remove the name between our open and lock
    if (!taken) throw_taken(output, path_);
    lock_.emplace(std::move(*taken));
  }
  lock_->say("process " + std::to_string(::getpid()) + " on host " + host_name());
}

OutputLock::OutputLock(OutputLock&&) noexcept = default;

OutputLock::~OutputLock() {
  if (lock_ && lock_->is_at(path_)) ::unlink(path_.c_str());
}

}  // namespace moeloom
