// A temporary folder that all ranks of a test use.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <optional>

#include "support/files.hpp"

namespace moeloom::testing {

/// Made by rank 0, removed by it when every rank is done. Making and destroying it are collective.
class SharedFolder {
 public:
  explicit SharedFolder(const Communicator& world) : world_(world) {
    if (world.rank() == 0) mine_.emplace();
    path_ = world.all_gather_text(mine_ ? mine_->path().string() : "").front();
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() { world_.barrier(); }

  const std::filesystem::path& path() const { return path_; }

 private:
  const Communicator& world_;
  std::optional<TemporaryFolder> mine_;
  std::filesystem::path path_;
};

}  // namespace moeloom::testing
