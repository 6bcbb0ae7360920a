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

/// `to` may be there. Throws IoError; what fails leaves both as they were.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
/// Does nothing where there is none. Throws IoError.
void remove_file(const std::filesystem::path& path);
/// What the path leads to; not_found is an answer. Throws IoError where the system does not say.
std::filesystem::file_type type_of_file(const std::filesystem::path& path);
/// Whether it leads to anything. Throws as type_of_file() does.
bool is_there(const std::filesystem::path& path);

/// An open file. Every member throws IoError with the path and the system's text.
class SystemFile {
 public:
  SystemFile(std::filesystem::path path, int flags);
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;
  ~SystemFile();

  int descriptor() const { return descriptor_; }
  /// Whether that name leads to this file.
  bool is_at(const std::filesystem::path& path) const;
  /// Throws if the path is a folder, a pipe or a device.
  Index bytes() const;
  /// Reserves [0, bytes) on the disk; where the filesystem cannot reserve, only sets the size.
  void reserve(Index bytes);
  /// Throws too where the file ends before.
  void read_at(Index offset, std::span<std::byte> bytes) const;
  void write_at(Index offset, std::span<const std::byte> bytes);
  void truncate(Index bytes);
  /// Hands everything to the disk: errors that the system kept for later arrive here.
  void sync();
  void sync_and_close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace moeloom
