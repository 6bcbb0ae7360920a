#include "io/disk_memory.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <linux/magic.h>
#include <string>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <system_error>
#include <unistd.h>

#include "page_reader.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

/// Where the file system has no files without names, of one whose name is gone at once.
int open_unnamed(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string name = (folder / "moeloom-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// -> the error, or 0.
int reserve(int file, Index bytes) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, 0, bytes);
  return error;
}

}  // namespace

DiskMemory::DiskMemory(const std::filesystem::path& folder, Index bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const int file = open_unnamed(folder);
  if (file < 0) throw_system_error("make a file in", folder, errno);
  // A page without room on the disk would end the process when it is written.
  const int error = reserve(file, bytes);
  void* const map =
      error == 0 ? ::mmap(nullptr, at(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int cause = error != 0 ? error : errno;
  ::close(file);
  if (map == MAP_FAILED) throw_system_error("reserve " + std::to_string(bytes) + " bytes in", folder, cause);
  ::madvise(map, at(bytes), MADV_DONTDUMP);
  data_ = static_cast<std::byte*>(map);
  try {
    reader_ = std::make_unique<PageReader>(data_);
  } catch (const std::system_error& error) {
    ::munmap(map, at(bytes));
    throw_system_error("start a thread that reads from", folder, error.code().value());
  }
}

DiskMemory::~DiskMemory() {
  reader_.reset();
  if (data_ != nullptr) ::munmap(data_, at(bytes_));
}

/// Those at the ends may hold others too, which costs these a look-up.
Stretch DiskMemory::pages_of(const Stretch& bytes) const {
  const Index page = ::sysconf(_SC_PAGESIZE);
  return {bytes.begin / page * page, std::min(ceil_div(bytes.end, page) * page, bytes_)};
}

void DiskMemory::read_ahead(const Stretch& bytes) const {
  if (const Stretch pages = pages_of(bytes); pages.begin < pages.end) reader_->ask_for(pages);
}

void DiskMemory::leave(const Stretch& bytes) const {
  const Stretch pages = pages_of(bytes);
  if (pages.begin >= pages.end) return;
  reader_->forget(pages);
  ::madvise(data_ + pages.begin, at(pages.size()), MADV_DONTNEED);
}

bool lies_in_memory(const std::filesystem::path& folder) {
  struct statfs system = {};
  if (::statfs(folder.c_str(), &system) != 0) return false;
  const auto type = static_cast<std::uint32_t>(system.f_type);  // signed on some machines
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

}  // namespace moeloom
