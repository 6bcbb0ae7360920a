// Memory whose home is a disk: pages that are not in use leave it and come back by themselves.
//
// It is a file without a name that is mapped whole. Its room on the disk is reserved first, and nothing is
// left of it when the process ends, however it ends. Where the file system has no files without names (NFS),
// what a killed process leaves is that file system's to remove.
#pragma once

#include "moeloom/base/stretch.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>

namespace moeloom {

class PageReader;

class DiskMemory {
 public:
  /// Zeros, `bytes` of them. Throws IoError with the folder and the system's text where that has no room.
  DiskMemory(const std::filesystem::path& folder, Index bytes);
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;
  ~DiskMemory();

  std::byte* data() const { return data_; }
  Index bytes() const { return bytes_; }

  /// Begins to read what is not in memory, without waiting for it.
  void read_ahead(const Stretch& bytes) const;
  /// This process will not use these bytes soon: they stay in the system's cache while it has room.
  void leave(const Stretch& bytes) const;

 private:
  Stretch pages_of(const Stretch& bytes) const;

  std::byte* data_ = nullptr;
  Index bytes_;
  std::unique_ptr<PageReader> reader_;
};

/// Whether what is written into this folder stays in memory (tmpfs, ramfs). False where there is none.
bool lies_in_memory(const std::filesystem::path& folder);

}  // namespace moeloom
