// A file in memory, read-only, for as long as the object lives. Of this rank alone, no collective.
//
// Nobody may make the file shorter meanwhile: the system ends a process that reads behind the end (SIGBUS).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace moeloom {

/// Moved, not copied. Many threads may read at once.
class MappedFile {
 public:
  /// Of no bytes.
  MappedFile() = default;
  /// Throws IoError with the path and the system's text. An empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// All of it; stays where it is when the object is moved.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Pages that were read no longer count as this process's memory; the next read finds them in the system's
  /// cache or on the disk. Never fails.
  void forget() const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moeloom
