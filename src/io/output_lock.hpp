// An output that one process at a time writes; the lock's file is gone when the output is there.
//
// A FileLock leaves its file, which is right within a run's folder and is litter beside somebody's output. It
// may be removed by its holder if whoever takes it looks whether the name still leads to what it locked.
#pragma once

#include "io/file_lock.hpp"

#include <filesystem>
#include <optional>

namespace moeloom {

class OutputLock {
 public:
  /// Makes `file` if need be. Throws ConfigError that names `output` and who holds the lock, IoError from the
  /// system. Where the filesystem has no locks nothing is held.
  OutputLock(const std::filesystem::path& output, std::filesystem::path file);
  OutputLock(OutputLock&&) noexcept;
  /// Gives it back and removes the file.
  ~OutputLock();

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
};

}  // namespace moeloom
