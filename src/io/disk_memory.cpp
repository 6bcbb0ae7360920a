#include "moeloom/io/disk_memory.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

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

}  // namespace

DiskMemory::DiskMemory(const std::filesystem::path& folder, Index bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const int file = open_unnamed(folder);
  if (file < 0) throw_system_error("make a file in", folder, errno);
  // A page without room on the disk would end the process when it is written.
  const int error = ::posix_fallocate(file, 0, bytes);
  void* const map =
      error == 0 ? ::mmap(nullptr, at(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int cause = error != 0 ? error : errno;
  ::close(file);
  if (map == MAP_FAILED) throw_system_error("reserve " + std::to_string(bytes) + " bytes in", folder, cause);
  ::madvise(map, at(bytes), MADV_DONTDUMP);
  data_ = static_cast<std::byte*>(map);
}

DiskMemory::~DiskMemory() {
  if (data_ != nullptr) ::munmap(data_, at(bytes_));
}

/// Of the pages that hold them; those at the ends may hold others too, which costs these a look-up.
void DiskMemory::advise(const Stretch& bytes, int advice) const {
  const Index page = ::sysconf(_SC_PAGESIZE);
  const Index first = bytes.begin / page * page;
  const Index last = std::min(ceil_div(bytes.end, page) * page, bytes_);
  if (first < last) ::madvise(data_ + first, at(last - first), advice);
}

void DiskMemory::read_ahead(const Stretch& bytes) const {
  advise(bytes, MADV_WILLNEED);
}

void DiskMemory::leave(const Stretch& bytes) const {
  advise(bytes, MADV_DONTNEED);
}

}  // namespace moeloom
