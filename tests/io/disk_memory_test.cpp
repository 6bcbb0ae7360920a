#include "io/disk_memory.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <sys/mman.h>
#include <thread>
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

/// Of some memory, the share of its pages that the system holds, whoever has mapped them.
double share_in_memory(const DiskMemory& memory) {
  std::vector<unsigned char> pages(at(ceil_div(memory.bytes(), Index{::sysconf(_SC_PAGESIZE)})));
  if (::mincore(memory.data(), at(memory.bytes()), pages.data()) != 0) return 1;
  const auto held = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<double>(held) / static_cast<double>(pages.size());
}

/// Writes it to the disk and takes it from the system's cache.
void drop(const DiskMemory& memory) {
  ASSERT_EQ(::msync(memory.data(), at(memory.bytes()), MS_SYNC), 0);
  ::madvise(memory.data(), at(memory.bytes()), MADV_PAGEOUT);
}

/// More than a device reads ahead of its own.
TEST(DiskMemory, ReadsAllThatIsAskedForAhead) {
  const Folder folder;
  if (lies_in_memory(folder.path())) GTEST_SKIP() << folder.path() << " lies in memory";
  const DiskMemory memory(folder.path(), Index{48} << 20);
  std::ranges::fill(bytes_of(memory), std::byte{3});
  drop(memory);
  if (share_in_memory(memory) > 0.1) GTEST_SKIP() << "this system keeps pages that it was asked to drop";
  memory.read_ahead({0, memory.bytes()});
  for (int tenths = 0; tenths < 200 && share_in_memory(memory) < 1; ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_GT(share_in_memory(memory), 0.9);
}

/// The reader stops where it is.
TEST(DiskMemory, IsLeftAndUnmappedWhileItIsReadAhead) {
  const Folder folder;
  for (int round = 0; round < 20; ++round) {
    const DiskMemory memory(folder.path(), kBytes);
    for (Index begin = 0; begin < kBytes; begin += kBytes / 8) memory.read_ahead({begin, begin + kBytes / 8});
    if (round % 2 == 0) memory.leave({0, kBytes});
  }
}

TEST(DiskMemory, KnowsFoldersThatLieInMemory) {
  EXPECT_FALSE(lies_in_memory("/no/such/folder"));
  EXPECT_FALSE(lies_in_memory("/proc"));
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  EXPECT_TRUE(lies_in_memory("/dev/shm"));
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
