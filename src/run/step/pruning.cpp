#include "step/pruning.hpp"

#include "train/checkpoint/checkpoint.hpp"

#include <system_error>

namespace moeloom {

void Pruning::begin(const std::filesystem::path& run, Index keep, Index written) {
  const auto remove = [=]() -> std::string {
    try {
      prune_checkpoints(run, keep, written);
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  try {
    under_way_ = std::async(std::launch::async, remove);
  } catch (const std::system_error&) {
    under_way_ = std::async(std::launch::deferred, remove);  // no thread is to be had
  }
}

}  // namespace moeloom
