#include "moeloom/io/disk_memory.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kBytes = Index{8} << 20;

/// A folder that lives as long as the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("moeloom-disk-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::span<std::byte> bytes_of(const DiskMemory& memory) {
  return {memory.data(), at(memory.bytes())};
}

/// Bytes of files that this process has mapped, which the system's cache may hold besides.
Index mapped_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssFile:") {
      Index kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  return 0;
}

TEST(DiskMemory, KeepsWhatWasWrittenWhenItIsLeft) {
  const Folder folder;
  const DiskMemory memory(folder.path(), kBytes);
  EXPECT_TRUE(std::ranges::all_of(bytes_of(memory), [](std::byte b) { return b == std::byte{0}; }));
  for (Index i = 0; i < kBytes; ++i) memory.data()[i] = static_cast<std::byte>(i * 7 % 251);
  const Index before = mapped_bytes();
  memory.leave({0, kBytes});
  EXPECT_LE(mapped_bytes(), before - kBytes * 9 / 10);
  memory.read_ahead({1000, kBytes - 1000});
  for (Index i = 0; i < kBytes; ++i) ASSERT_EQ(memory.data()[i], static_cast<std::byte>(i * 7 % 251)) << i;
}

TEST(DiskMemory, LeavesNothingInTheFolder) {
  const Folder folder;
  const DiskMemory memory(folder.path(), kBytes);
  memory.data()[0] = std::byte{1};
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DiskMemory, OfNoBytesIsNowhere) {
  EXPECT_EQ(DiskMemory("/no/such/folder", 0).data(), nullptr);
}

TEST(DiskMemory, NamesTheFolderThatHasNoRoomOrIsNotThere) {
  const auto message_of = [](const std::filesystem::path& folder, Index bytes) -> std::string {
    try {
      const DiskMemory memory(folder, bytes);
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message_of("/no/such/folder", kBytes).find("/no/such/folder"), std::string::npos);
  const Folder folder;
  EXPECT_NE(message_of(folder.path(), Index{1} << 60).find(folder.path().string()), std::string::npos);
}

}  // namespace
}  // namespace moeloom
