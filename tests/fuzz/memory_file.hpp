// Files without a disk, for parsers that open a path.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "support/files.hpp"

namespace moeloom::fuzz {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  explicit MemoryFile(std::string_view bytes) : MemoryFile() { hold(bytes); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  void hold(std::string_view bytes) {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("write to a memfd");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

/// A folder whose names lead to such files; made anew on a disk they would take most of the time.
class MemoryFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  void hold(const std::string& name, std::string_view bytes) {
    MemoryFile& file = files_[name];
    file.hold(bytes);
    if (!std::filesystem::is_symlink(folder_ / name))
      std::filesystem::create_symlink(file.path(), folder_ / name);
  }
  void remove(const std::string& name) { std::filesystem::remove(folder_ / name); }

 private:
  testing::TemporaryFolder folder_;
  std::map<std::string, MemoryFile> files_;
};

}  // namespace moeloom::fuzz
