#include "system_file.hpp"

#include "io/file_observer.hpp"
#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace moeloom {

void throw_system_error(std::string_view action, const std::filesystem::path& path, int error) {
  throw_io_error("cannot " + std::string(action) + " " + path.string(), error);
}

namespace {

/// The folder may be a stranger's, with a link under a name that will be written. Devices are no one's files.
void refuse_link(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored) && !std::filesystem::is_character_file(path, ignored))
    throw IoError("cannot create " + path.string() + ": a link has this name; remove it");
}

}  // namespace

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  observed_bytes(FileStage::kRename, from);
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw_system_error("rename " + from.string() + " to", to, errno);
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_system_error("remove", path, errno);
}

std::filesystem::file_type type_of_file(const std::filesystem::path& path) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::status_known(status)) throw_system_error("look at", path, failure.value());
  return status.type();
}

bool is_there(const std::filesystem::path& path) {
  return type_of_file(path) != std::filesystem::file_type::not_found;
}

SystemFile::SystemFile(std::filesystem::path path, int flags) : path_(std::move(path)) {
  // Without O_NONBLOCK the open of a pipe would wait for its other end; regular files do not mind.
  if ((flags & O_CREAT) != 0) refuse_link(path_);
  descriptor_ = ::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  if (descriptor_ < 0) throw_system_error((flags & O_CREAT) != 0 ? "create" : "open", path_, errno);
}

SystemFile::~SystemFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool SystemFile::is_at(const std::filesystem::path& path) const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor_, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

Index SystemFile::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("ask for the size of", path_, errno);
  if (S_ISDIR(status.st_mode)) throw IoError(path_.string() + ": expected a file, found a folder");
  if (!S_ISREG(status.st_mode)) throw IoError(path_.string() + ": expected a regular file");
  return static_cast<Index>(status.st_size);
}

void SystemFile::reserve(Index bytes) {
  observed_bytes(FileStage::kReserve, path_, bytes);
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(descriptor_, 0, bytes);
  if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS)
    error = ::ftruncate(descriptor_, bytes) == 0 ? 0 : errno;
  if (error != 0) throw_system_error("reserve " + std::to_string(bytes) + " bytes for", path_, error);
}

void SystemFile::read_at(Index offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path_, errno);
    if (got == 0) throw IoError(path_.string() + ": ends at byte " + std::to_string(offset));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void SystemFile::write_at(Index offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const Index most = observed_bytes(FileStage::kWrite, path_, std::ssize(bytes));
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), static_cast<std::size_t>(most), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error("write to", path_, errno);
    if (written == 0) throw_system_error("write to", path_, ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void SystemFile::truncate(Index bytes) {
  if (::ftruncate(descriptor_, bytes) != 0) throw_system_error("set the size of", path_, errno);
}

void SystemFile::sync() {
  observed_bytes(FileStage::kSync, path_);
  // Some filesystems have no fsync and say EINVAL; there is then nothing to wait for.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) throw_system_error("finish writing", path_, errno);
}

void SystemFile::sync_and_close() {
  sync();
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_system_error("finish writing", path_, errno);
}

}  // namespace moeloom
