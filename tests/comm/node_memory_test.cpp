#include "comm/node_memory.hpp"

#include "comm/process_memory.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/file_size_limit.hpp"
#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<NodeMemory> memory_of_world(Index mailbox_bytes = 64) {
  return std::make_shared<NodeMemory>(Communicator::world().split_by_node(), mailbox_bytes);
}

template <typename T>
T& value_in(std::span<std::byte> bytes) {
  return *reinterpret_cast<T*>(bytes.data());
}
template <typename T>
T value_in(std::span<const std::byte> bytes) {
  return *reinterpret_cast<const T*>(bytes.data());
}

/// Ranks that are late by turns: whoever reads too early or too late reads another round's number.
TEST(NodeMemory, EachMeetingShowsWhatEveryRankWroteBeforeIt) {
  const auto memory = memory_of_world();
  for (Index round = 0; round < 500; ++round) {
    value_in<Index>(memory->outbox()) = 1000 * round + memory->rank();
    if (round % 50 == memory->rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    memory->meet();
    if (round % 50 == memory->rank() + 25) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int rank = 0; rank < memory->size(); ++rank)
      ASSERT_EQ(value_in<Index>(memory->inbox(rank)), 1000 * round + rank);
  }
}

/// Rank 1 comes to the meeting when rank 0's board says that it is awaited, which another thread of rank 0
/// reads as a watcher would.
TEST(NodeMemory, AWaitNamesTheRankThatIsAwaited) {
  Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to wait for";
  PositionBoard board;
  world.report_to(board);
  const auto memory = std::make_shared<NodeMemory>(world.split_by_node(), 64);
  const NodeBlock block(memory, sizeof(std::atomic<std::uint64_t>));
  auto* const mine = new (block.data()) std::atomic<std::uint64_t>(0);
  value_in<Index>(memory->outbox()) = block.offset();
  memory->meet();
  if (memory->rank() == 1)
    wait_until(
        *reinterpret_cast<std::atomic<std::uint64_t>*>(memory->address(0, value_in<Index>(memory->inbox(0)))),
        1, nullptr);
  Position seen;
  std::thread watcher;
  if (memory->rank() == 0)
    watcher = std::thread([&] {
      const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(200);
      while (seen.waits_for != 1 && std::chrono::steady_clock::now() < patience) seen = board.read();
      mine->store(1);
    });
  memory->meet();
  if (memory->rank() != 0) return;
  watcher.join();
  EXPECT_EQ(seen.waits_for, 1);
  EXPECT_EQ(seen.call, "node memory");
  EXPECT_EQ(board.read().call, "") << "the wait is over";
}

TEST(NodeMemory, EveryRankWritesIntoEveryOthersBlock) {
  const auto memory = memory_of_world();
  const NodeBlock block(memory, memory->size() * static_cast<Index>(sizeof(int)));
  value_in<Index>(memory->outbox()) = block.offset();
  memory->meet();
  for (int rank = 0; rank < memory->size(); ++rank) {
    auto* theirs = reinterpret_cast<int*>(memory->address(rank, value_in<Index>(memory->inbox(rank))));
    theirs[memory->rank()] = 100 * memory->rank() + rank;
  }
  memory->meet();
  const auto* mine = reinterpret_cast<const int*>(block.data());
  for (int rank = 0; rank < memory->size(); ++rank) EXPECT_EQ(mine[rank], 100 * rank + memory->rank());
  memory->meet();
}

TEST(NodeMemory, GrowsByOneRankAloneAndKeepsWhatOthersHold) {
  const auto memory = memory_of_world();
  std::vector<NodeBlock> blocks;
  for (Index i = 0; i < 20 * (memory->rank() + 1); ++i) {  // no other rank takes part
    blocks.emplace_back(memory, (i + 1) * 5000);
    std::memset(blocks.back().data(), static_cast<int>(i), at(blocks.back().bytes()));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].data()[0], static_cast<std::byte>(i));
    EXPECT_EQ(blocks[i].data()[at(blocks[i].bytes()) - 1], static_cast<std::byte>(i));
  }
  value_in<Index>(memory->outbox()) = blocks.back().offset();
  memory->meet();
  for (int rank = 0; rank < memory->size(); ++rank)
    EXPECT_EQ(*memory->address(rank, value_in<Index>(memory->inbox(rank))),
              static_cast<std::byte>(20 * (rank + 1) - 1));
  memory->meet();
}

TEST(NodeMemory, AReleasedBlockOutlivesTheMeetingThatShowedItAndNoMore) {
  const auto memory = memory_of_world();
  std::optional<NodeBlock> block(std::in_place, memory, Index{1} << 20);
  EXPECT_EQ(memory->bytes(), Index{1} << 20);
  *block->data() = std::byte{7};
  value_in<Index>(memory->outbox()) = block->offset();
  memory->meet();
  block.reset();
  const int peer = (memory->rank() + 1) % memory->size();
  EXPECT_EQ(*memory->address(peer, value_in<Index>(memory->inbox(peer))), std::byte{7});
  EXPECT_EQ(memory->bytes(), Index{1} << 20) << "a peer may be reading it";
  memory->meet();
  EXPECT_EQ(memory->bytes(), 0);
}

/// Without new addresses for what comes and goes, a run of any length fits the reserve.
TEST(NodeMemory, AddressesOfReleasedBlocksAreDealtAnewAndNoneTwice) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  constexpr Index kMiB = Index{1} << 20;
  std::vector<std::optional<NodeBlock>> blocks(7);
  Index highest = 0;
  for (Index round = 0; round < 200; ++round) {
    auto& block = blocks[at(round % 7)];
    block.reset();
    memory->meet();
    // Of pages, of huge pages, and of both sizes by turns.
    block.emplace(memory, round % 3 == 0 ? 5000 + 4096 * (round % 11) : kMiB * (1 + round % 5));
    std::memset(block->data(), static_cast<int>(round % 7), at(block->bytes()));
    highest = std::max(highest, block->offset() + block->bytes());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (!blocks[i]) continue;
      EXPECT_EQ(blocks[i]->data()[0], static_cast<std::byte>(i)) << "round " << round;
      EXPECT_EQ(blocks[i]->data()[at(blocks[i]->bytes()) - 1], static_cast<std::byte>(i))
          << "round " << round;
    }
  }
  EXPECT_LE(highest, 7 * 8 * kMiB) << "seven blocks of at most 6 MiB";
  const NodeBlock zeros(memory, 4096);
  EXPECT_TRUE(std::all_of(zeros.data(), zeros.data() + 4096, [](std::byte b) { return b == std::byte{0}; }))
      << "pages of a released block come back empty";
}

TEST(NodeMemory, ABlockThatGrowsAtTheEndBeginsWhereItWas) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  const Index first = NodeBlock(memory, 4096).offset();
  for (Index pages = 2; pages < 100; pages *= 2) {
    memory->meet();  // gives back what was released before it
    EXPECT_EQ(NodeBlock(memory, pages * 4096).offset(), first) << pages << " pages";
  }
}

TEST(NodeMemory, TellsWhereInItAPlaceLiesAndRefusesOthers) {
  const auto memory = memory_of_world();
  const NodeBlock block(memory, 8192);
  EXPECT_EQ(memory->offset_of(block.data() + 100), block.offset() + 100);
  const int elsewhere = 0;
  EXPECT_FALSE(memory->offset_of(&elsewhere));
  EXPECT_FALSE(memory->offset_of(nullptr));
  memory->meet();
}

TEST(NodeMemory, WhatTheNodeCannotGiveIsAnErrorThatNamesTheBytes) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  const Index all = memory_of_this_node();
  try {
    const NodeBlock block(memory, 17 * all);
    FAIL() << "a block of 17 times the node's memory was given";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(17 * all)), std::string::npos) << error.what();
  }
  const NodeBlock block(memory, 4096);
  *block.data() = std::byte{1};
  EXPECT_EQ(memory->bytes(), 4096);
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find("moeloom") != std::string::npos) names.insert(name);
  }
  return names;
}

std::set<fs::path> memories_of(pid_t process) {
  std::set<fs::path> found;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string().find("memfd:moeloom") != std::string::npos)
      found.insert(entry.path());
  }
  return found;
}

/// A child with 64 MiB of shared blocks waits to be killed; it has told that it holds them.
[[noreturn]] void hold_memory(int told) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  const NodeBlock block(memory, Index{64} << 20);
  std::memset(block.data(), 1, at(block.bytes()));
  const char word = 'x';
  if (::write(told, &word, 1) != 1) ::_exit(1);
  for (;;) ::pause();
}

TEST(NodeMemory, AKilledProcessLeavesNothingBehind) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto before = names_in("/dev/shm");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) hold_memory(ends[1]);
  char word = 0;
  ASSERT_EQ(::read(ends[0], &word, 1), 1);
  EXPECT_EQ(memories_of(child).size(), 1u);
  EXPECT_EQ(names_in("/dev/shm"), before) << "it has a name that someone would have to remove";
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(child)));
  EXPECT_EQ(names_in("/dev/shm"), before);
  ::close(ends[0]);
  ::close(ends[1]);
}

/// Lets this process have so many addresses beyond those that it has.
class AddressLimit {
 public:
  explicit AddressLimit(Index more) {
    ::getrlimit(RLIMIT_AS, &before_);
    Index pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + more);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(NodeMemory, TakesFewerAddressesWhereTheyAreLimited) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer takes addresses of its own";
  const AddressLimit limit(Index{1} << 30);
  const auto memory = memory_of_world();
  const Index room = (Index{1} << 30) / memory->size();
  const NodeBlock block(memory, room / 8);
  value_in<Index>(memory->outbox()) = block.offset();
  memory->meet();
  for (int rank = 0; rank < memory->size(); ++rank)
    *memory->address(rank, value_in<Index>(memory->inbox(rank)) + memory->rank()) = std::byte{7};
  memory->meet();
  for (int rank = 0; rank < memory->size(); ++rank) EXPECT_EQ(block.data()[rank], std::byte{7});
  EXPECT_THROW(NodeBlock(memory, room), Error) << "more than is left";
}

TEST(NodeMemory, IsNoLargerThanAFileMayBe) {
  {
    const testing::FileSizeLimit limit(rlim_t{64} << 20);
    const auto memory = memory_of_world();
    const NodeBlock block(memory, Index{1} << 20);
    EXPECT_THROW(NodeBlock(memory, Index{64} << 20), Error) << "more than is left";
  }
  const testing::FileSizeLimit limit(1000);
  EXPECT_THROW(memory_of_world(), Error);
}

TEST(NodeMemory, OneRankWithFewAddressesIsEnoughForAllToTakeFewer) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer takes addresses of its own";
  std::optional<AddressLimit> limit;
  if (Communicator::world().rank() == 0) limit.emplace(Index{1} << 30);
  const auto memory = memory_of_world();
  memory->meet();
  EXPECT_THROW(NodeBlock(memory, Index{1} << 30), Error);
}

}  // namespace
}  // namespace moeloom
