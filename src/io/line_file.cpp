#include "io/line_file.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "system_file.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostWaiting = std::size_t{64} << 20;

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::uint64_t file_system_of(const fs::path& path) {
  struct stat status {};
  std::error_code failure;
  const fs::path full = fs::absolute(path, failure);
  if (failure) throw_system_error("find", path, failure.value());
  for (fs::path place = full;; place = place.parent_path()) {
    if (::stat(place.c_str(), &status) == 0) return status.st_dev;
    if ((errno != ENOENT && errno != ENOTDIR) || place == place.parent_path())
      throw_system_error("find", path, errno);
  }
}

LineFile::LineFile(fs::path path)
    : path_(std::move(path)),
      file_system_(file_system_of(folder_of(path_))),
      file_(std::make_unique<SystemFile>(path_, O_CREAT | O_WRONLY)),
      end_(file_->bytes()) {}

LineFile::~LineFile() = default;

std::string LineFile::append(std::string_view line) {
  (waiting_ += line) += '\n';
  try {
    open_if_gone();
    write_waiting();
    return {};
  } catch (const IoError& error) {
    drop_oldest();
    return error.what();
  }
}

Index LineFile::waiting_lines() const {
  return std::ranges::count(waiting_, '\n');
}

void LineFile::open_if_gone() {
  if (file_->is_at(path_)) {
    end_ = std::min(end_, file_->bytes());  // somebody may have emptied it
    return;
  }
  if (file_system_of(folder_of(path_)) != file_system_)
    throw IoError(path_.string() + ": its folder is on another file system than before: a mount is gone");
  file_ = std::make_unique<SystemFile>(path_, O_CREAT | O_WRONLY);
  end_ = file_->bytes();
}

void LineFile::write_waiting() {
  try {
    file_->write_at(end_, std::as_bytes(std::span(waiting_)));
  } catch (const IoError&) {
    std::ignore = ::ftruncate(file_->descriptor(), end_);  // else a part of a line stays
    throw;
  }
  end_ += std::ssize(waiting_);
  waiting_.clear();
}

void LineFile::drop_oldest() {
  if (waiting_.size() <= kMostWaiting) return;
  const std::size_t end = waiting_.find('\n', waiting_.size() / 2) + 1;
  lost_lines_ += std::count(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  waiting_.erase(0, end);
}

}  // namespace moeloom
