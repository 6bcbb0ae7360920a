// A file that lines are added to for days, and that a full disk does not end.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace moeloom {

class SystemFile;

class LineFile {
 public:
  /// Adds to what is there. Throws IoError.
  explicit LineFile(std::filesystem::path path);
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  ~LineFile();

  /// Hands the line to the system -> why it could not; empty: it is written, and so are those that waited.
  /// Lines that could not be written wait for the next call; beyond 64 MiB the oldest are lost. A file that
  /// somebody removed is made anew, unless its folder is on another file system now: then a mount is gone.
  std::string append(std::string_view line);
  Index waiting_lines() const;
  Index lost_lines() const { return lost_lines_; }

 private:
  void open_if_gone();
  void write_waiting();
  void drop_oldest();

  std::filesystem::path path_;
  std::uint64_t file_system_ = 0;
  std::unique_ptr<SystemFile> file_;
  Index end_ = 0;  // of the lines that are written
  std::string waiting_;
  Index lost_lines_ = 0;
};

/// A number of the file system that holds a path, or the nearest folder above it that is there. Throws
/// IoError.
std::uint64_t file_system_of(const std::filesystem::path& path);

}  // namespace moeloom
