#include "io/output_lock.hpp"

#include "base/host_name.hpp"
#include "io/file_lock.hpp"
#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "system_file.hpp"

namespace moeloom {
namespace {

/// False: another process has it. Any other answer means that there are no locks here (as FileLock).
bool locked(const SystemFile& file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (::fcntl(file.descriptor(), F_OFD_SETLK, &whole) != 0)
    if (errno != EINTR) return errno != EAGAIN && errno != EACCES;
  return true;
}

/// False: the holder before removed it between our open and our lock.
bool has_name(const SystemFile& file, const std::filesystem::path& path) {
  struct stat here {
  }, named{};
  return ::fstat(file.descriptor(), &here) == 0 && ::stat(path.c_str(), &named) == 0 &&
         here.st_dev == named.st_dev && here.st_ino == named.st_ino;
}

/// A full disk may leave it unsaid; the lock is what counts.
void say_holder(SystemFile& file) {
  const std::string text = "process " + std::to_string(::getpid()) + " on host " + host_name();
  try {
    file.truncate(0);
    file.write_at(0, std::as_bytes(std::span(text)));
  } catch (const IoError&) {
    return;
  }
}

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
  for (int i = 0; i < kTries && (!file_ || !has_name(*file_, path_)); ++i) {
    file_ = std::make_unique<SystemFile>(path_, O_CREAT | O_RDWR);
    if (!locked(*file_)) throw_taken(output, path_);
  }
  say_holder(*file_);
}

OutputLock::OutputLock(OutputLock&&) noexcept = default;

OutputLock::~OutputLock() {
  if (file_) ::unlink(path_.c_str());  // while it is held: never another's
}

}  // namespace moeloom
