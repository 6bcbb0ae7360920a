// Old checkpoints of a run go beside its steps: a disk that is busy takes long to forget a large file.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <future>
#include <string>

namespace moeloom {

/// One at a time. Where it ends, it waits.
class Pruning {
 public:
  /// After finish(): all but the newest `keep` (0: all stay) and that of step `written` go. Which, is settled
  /// here: a checkpoint that is written before they are gone is not of them.
  void begin(const std::filesystem::path& run, Index keep, Index written);
  /// Waits, if one is under way -> what went wrong; empty: nothing.
  std::string finish() { return under_way_.valid() ? under_way_.get() : std::string(); }

 private:
  std::future<std::string> under_way_;
};

}  // namespace moeloom
