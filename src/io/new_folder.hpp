// A folder that appears whole or not at all: it is filled beside its place under another name, then renamed.
#pragma once

#include "io/output_lock.hpp"

#include <filesystem>

namespace moeloom {

/// Where `folder` is filled: .NAME.partial beside it.
std::filesystem::path partial_folder(const std::filesystem::path& folder);

/// Throws ConfigError where `folder` is no name that a new folder can take: it is there and not empty, a
/// link, or "." or ".."; IoError from the system. Changes nothing.
void require_place_for_folder(const std::filesystem::path& folder);

/// One process at a time has it, though others may fill it, too.
class NewFolder {
 public:
  /// Makes an empty partial_folder(folder), whatever a killed writer left there. Throws as
  /// require_place_for_folder(); ConfigError where another process writes it, and for a mount point.
  explicit NewFolder(const std::filesystem::path& folder);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Removes the partial folder as far as the system lets it, unless it was published.
  ~NewFolder();

  /// The partial folder takes its place, after the disk has it. Throws IoError.
  void publish();

 private:
  std::filesystem::path folder_;
  OutputLock lock_;
  bool published_ = false;
};

/// A folder's list of names is data too: without this a rename may be forgotten in a power cut.
void sync_folder(const std::filesystem::path& folder);
/// That of a file or folder.
void sync_folder_of(const std::filesystem::path& path);

}  // namespace moeloom
