// Memory whose home is a disk: pages that are not in use leave it and come back by themselves.
//
// It is a file without a name that is mapped whole. Its room on the disk is reserved first, and nothing is
// left of it when the process ends, however it ends.
#pragma once

#include "moeloom/base/stretch.hpp"

#include <cstddef>
#include <filesystem>

namespace moeloom {

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
  void advise(const Stretch& bytes, int advice) const;

  std::byte* data_ = nullptr;
  Index bytes_;
};

}  // namespace moeloom
