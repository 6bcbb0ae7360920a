#include "io/file_lock.hpp"

#include "moeloom/base/errors.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "system_file.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kMostText = 4096;

std::string text_of(const SystemFile& file) {
  std::array<char, kMostText> text;
  const ssize_t count = ::pread(file.descriptor(), text.data(), text.size(), 0);
  return {text.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

/// 0, or the system's error.
int lock(const SystemFile& file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (::fcntl(file.descriptor(), F_OFD_SETLK, &whole) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::filesystem::path& path) {
  auto file = std::make_unique<SystemFile>(path, O_CREAT | O_RDWR);
  const int error = lock(*file);
  if (error == EAGAIN || error == EACCES) return std::nullopt;
  const bool unsupported =
      error == ENOLCK || error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS || error == EINVAL;
  if (error != 0 && !unsupported) throw_system_error("lock", path, error);
  return FileLock(std::move(file), error == 0);
}

FileLock::FileLock(std::unique_ptr<SystemFile> file, bool held)
    : file_(std::move(file)), held_(held), left_(text_of(*file_)) {}

FileLock::FileLock(FileLock&&) noexcept = default;

FileLock::~FileLock() {
  if (file_ && held_) say("");
}

bool FileLock::is_at(const std::filesystem::path& path) const {
  return file_ && file_->is_at(path);
}

void FileLock::say(std::string_view text) noexcept {
  if (::ftruncate(file_->descriptor(), 0) != 0) return;
  try {
    file_->write_at(0, std::as_bytes(std::span(text)));
  } catch (const std::exception&) {
    return;  // whoever is refused hears less; the lock is what counts
  }
}

std::string said_in(const std::filesystem::path& path) {
  try {
    return text_of(SystemFile(path, O_RDONLY));
  } catch (const IoError&) {
    return {};
  }
}

}  // namespace moeloom
