// Who sees every write, sync and rename before the system does: the way in for tests of a disk that refuses.
//
// One for the whole process, and not an argument, because whoever writes has no business with it. Without one
// a write costs the reading of a pointer more.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>

namespace moeloom {

enum class FileStage { kWrite, kSync, kRename, kReserve };

/// What becomes of it: `error` (of errno) in place of the call where it is not 0; else a write of `bytes` at
/// most, after which the rest follows.
struct FileAnswer {
  Index bytes = 0;
  int error = 0;
};

class FileObserver {
 public:
  virtual ~FileObserver() = default;
  /// path: of the file or folder, of a rename the old one; bytes: to be written or reserved. Called by the
  /// thread that writes, several at once. What it throws the writer throws.
  virtual FileAnswer before(FileStage stage, const std::filesystem::path& path, Index bytes) = 0;
};

/// From now on; null: nobody, as at the start. It must outlive what is written.
void observe_files(FileObserver* observer);

/// Asks the observer, if there is one. Throws IoError for the error that it answers.
Index observed_bytes(FileStage stage, const std::filesystem::path& path, Index bytes = 0);

}  // namespace moeloom
