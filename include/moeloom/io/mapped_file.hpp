// A file in memory, read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace moeloom {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError with the path and the system's text. An empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Pages that were read no longer count as this process's; the next read finds them in the system's cache.
  void forget() const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moeloom
