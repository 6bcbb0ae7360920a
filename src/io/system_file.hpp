// The system's file calls with RAII and with errors that name the path.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace moeloom {

/// Throws IoError "cannot <action> <path>: <the system's text>".
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error);

/// An open file. Every member throws IoError with the path and the system's text.
class SystemFile {
 public:
  SystemFile(std::filesystem::path path, int flags);
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;
  ~SystemFile();

  int descriptor() const { return descriptor_; }
  /// Throws if the path is a folder, a pipe or a device.
  Index bytes() const;
  /// Reserves [0, bytes) on the disk; where the filesystem cannot reserve, only sets the size.
  void reserve(Index bytes);
  /// Throws too where the file ends before.
  void read_at(Index offset, std::span<std::byte> bytes) const;
  void write_at(Index offset, std::span<const std::byte> bytes);
  /// Hands everything to the disk and closes: errors that the system kept for later arrive here.
  void sync_and_close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace moeloom
