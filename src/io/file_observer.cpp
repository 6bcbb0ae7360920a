#include "io/file_observer.hpp"

#include <array>
#include <atomic>
#include <string_view>

#include "system_file.hpp"

namespace moeloom {
namespace {

std::atomic<FileObserver*> observer{nullptr};

constexpr std::array<std::string_view, 4> kActions = {"write to", "finish writing", "rename", "reserve"};

}  // namespace

void observe_files(FileObserver* chosen) {
  observer.store(chosen, std::memory_order_release);
}

Index observed_bytes(FileStage stage, const std::filesystem::path& path, Index bytes) {
  FileObserver* const asked = observer.load(std::memory_order_acquire);
  if (asked == nullptr) return bytes;
  const FileAnswer answer = asked->before(stage, path, bytes);
  if (answer.error != 0) throw_system_error(kActions[static_cast<std::size_t>(stage)], path, answer.error);
  return answer.bytes;
}

}  // namespace moeloom
