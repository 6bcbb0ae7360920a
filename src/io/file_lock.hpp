// A file that one process at a time holds.
//
// An OFD lock of fcntl: the kernel gives it back when its process ends, however it ends, so no lock is ever
// stale, but for a process that forks while it holds one: what it forked, and did not execute another
// program, holds it too; NFS carries it to the server, which frees it when a dead host's lease runs out.
// Unlike the older POSIX lock it is not lost when another part of the process closes the same file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

class SystemFile;

class FileLock {
 public:
  /// Makes the file if need be. None: another process holds it. Throws IoError.
  static std::optional<FileLock> take(const std::filesystem::path& path);
  FileLock(FileLock&&) noexcept;
  /// Gives it back and leaves the file, empty: one that was removed could be held by two.
  ~FileLock();

  /// False: the filesystem has no locks, and nothing is held.
  bool held() const { return held_; }
  /// What the holder before left in it: empty if it gave the lock back in order.
  const std::string& left() const { return left_; }
  /// Whether the name still leads to what is held.
  bool is_at(const std::filesystem::path& path) const;
  /// For others to read. A full disk may leave it as it was.
  void say(std::string_view text) noexcept;

 private:
  FileLock(std::unique_ptr<SystemFile> file, bool held);

  std::unique_ptr<SystemFile> file_;
  bool held_ = false;
  std::string left_;
};

/// What a file's holder says; empty if nothing can be read.
std::string said_in(const std::filesystem::path& path);

}  // namespace moeloom
