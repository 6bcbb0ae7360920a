#include "step/pruning.hpp"

#include "train/checkpoint/checkpoint.hpp"

#include <system_error>
#include <vector>

namespace moeloom {

namespace {

template <typename Action>
std::string fault_of(const Action& action) {
  try {
    action();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void Pruning::begin(const std::filesystem::path& run, Index keep, Index written) {
  std::vector<std::filesystem::path> old;
  const std::string fault = fault_of([&] { old = old_checkpoints(run, keep, written); });
  const auto remove = [=] { return fault.empty() ? fault_of([&] { remove_checkpoints(old); }) : fault; };
  try {
    under_way_ = std::async(std::launch::async, remove);
  } catch (const std::system_error&) {
    under_way_ = std::async(std::launch::deferred, remove);  // no thread is to be had
  }
}

}  // namespace moeloom
