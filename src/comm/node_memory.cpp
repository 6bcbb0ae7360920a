#include "comm/node_memory.hpp"

#include "comm/process_memory.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace moeloom {
namespace {

constexpr Index kPage = 4096;
constexpr Index kHugePage = Index{2} << 20;
constexpr Index kLine = 64;

/// The first page of each rank's memory; mailboxes follow.
struct Head {
  std::uint64_t check_word;
  alignas(kLine) std::atomic<std::uint64_t> meetings;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a flag between processes needs no lock");
static_assert(sizeof(Head) <= kPage);

Head& head(std::byte* map) {
  return *std::launder(reinterpret_cast<Head*>(map));
}

Index rounded_up(Index bytes, Index unit) {
  return ceil_div(bytes, unit) * unit;
}

std::string system_text(const std::string& call) {
  return call + ": " + std::strerror(errno);
}

/// Closes on the way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// The node's memory several times over, divided among its ranks, because blocks that come and go leave gaps
/// too small for the next. A process has 128 TiB of addresses, and may hold many of these.
Index reserve_bytes(int ranks) {
  constexpr Index kTimes = 16, kMostOfANode = Index{4} << 40;
  const Index node = memory_of_this_node();
  return rounded_up(std::min(node * kTimes, std::max(kMostOfANode, 2 * node)) / ranks, kHugePage);
}

/// Whether this process may have so many addresses more: ulimit -v counts them, though no page is there.
bool has_addresses(Index bytes) {
  void* place = ::mmap(nullptr, at(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return false;
  ::munmap(place, at(bytes));
  return true;
}

/// ulimit -f counts it too, though no page is there, and SIGXFSZ ends who makes a file larger.
Index largest_file() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return static_cast<Index>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

/// What one rank's memory may be, where each maps that of all: the wish, or half of what is left where
/// addresses are limited, because all else needs some too. 0: no file may have a page.
Index possible_reserve(int ranks) {
  const Index wish = std::min(reserve_bytes(ranks), largest_file() / kHugePage * kHugePage);
  if (wish == 0) return 0;
  if (has_addresses(wish * ranks)) return wish;
  Index reserve = wish;
  while (reserve > kHugePage && !has_addresses(reserve * ranks)) reserve /= 2;
  return std::max(reserve / 2 / kHugePage * kHugePage, kHugePage);
}

/// The same on every rank of the node.
Index agreed_reserve(const Communicator& node) {
  const std::int64_t mine = possible_reserve(node.size());
  return std::ranges::min(node.all_gather(std::span(&mine, 1)));
}

/// What a rank tells the others: where its file is, and the word that proves it is the one.
using Card = std::array<std::int64_t, 3>;

std::int64_t random_word() {
  std::random_device device;
  return static_cast<std::int64_t>(std::uint64_t{device()} << 32 | device());
}

std::byte* map_whole(int fd, Index bytes) {
  void* place = ::mmap(nullptr, at(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (place == MAP_FAILED)
    throw Error(
        system_text("mmap of " + std::to_string(bytes) +
                    " bytes of addresses for memory that ranks share; raise the limit of addresses (ulimit "
                    "-v), or choose dispatcher = alltoall"));
  ::madvise(place, at(bytes), MADV_DONTDUMP);  // every rank would write the whole node's
  ::madvise(place, at(bytes), MADV_HUGEPAGE);  // where the system gives them to shared memory
  return static_cast<std::byte*>(place);
}

/// Non-blocking, and no terminal of ours: where processes do not see each other, the name may be anything.
std::byte* map_of_peer(const Card& card, Index bytes) {
  const std::string path = "/proc/" + std::to_string(card[0]) + "/fd/" + std::to_string(card[1]);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) throw Error(system_text("open " + path));
  std::int64_t word = 0;
  if (::pread(file.get(), &word, sizeof word, 0) != sizeof word || word != card[2])
    throw Error(path + " is not the memory of the rank that gave this name");
  return map_whole(file.get(), bytes);
}

void reserve_pages(int fd, Index offset, Index bytes) {
  int result = -1;
  do result = ::fallocate(fd, 0, offset, bytes);
  while (result != 0 && errno == EINTR);
  if (result != 0)
    throw Error(system_text("the node has no " + std::to_string(bytes) +
                            " bytes more for memory that ranks share; choose fewer tokens a step, or "
                            "dispatcher = alltoall: fallocate"));
}

}  // namespace

NodeWait::~NodeWait() {
  if (shown_) board_->enter_call(nullptr);
}

/// A peer that is running answers within the pauses; one that waits for a processor needs this one's.
void NodeWait::pause(Index waits_for) {
  constexpr int kPauses = 100;
  if (pauses_ < kPauses) {
    ++pauses_;
#ifdef __SSE2__
    _mm_pause();
#endif
    return;
  }
  if (board_ != nullptr && shown_ != waits_for) {
    board_->enter_call("node memory", waits_for);
    shown_ = waits_for;
  }
  ::sched_yield();
}

void wait_until(const std::atomic<std::uint64_t>& flag, std::uint64_t least, PositionBoard* board,
                Index waits_for) {
  NodeWait wait(board);
  while (flag.load(std::memory_order_acquire) < least) wait.pause(waits_for);
}

NodeMemory::NodeMemory(const Communicator& node, Index mailbox_bytes)
    : rank_(node.rank()),
      board_(node.board()),
      mailbox_bytes_(rounded_up(mailbox_bytes, kLine)),
      maps_(at(node.size())) {
  for (int rank = 0; rank < node.size(); ++rank) shown_ranks_.push_back(node.shown_rank(rank));
  try {
    map(node);
  } catch (...) {
    unmap();
    throw;
  }
}

NodeMemory::~NodeMemory() {
  unmap();
}

void NodeMemory::map(const Communicator& node) {
  reserve_ = agreed_reserve(node);
  const std::int64_t word = random_word();
  agree(node, [&] {
    Descriptor file(::memfd_create("moeloom", MFD_CLOEXEC));
    if (file.get() < 0) throw Error(system_text("memfd_create"));
    end_ = kPage + rounded_up(2 * mailbox_bytes_, kPage);
    if (end_ > reserve_)
      throw Error("ranks that share memory need " + std::to_string(end_) +
                  " bytes of addresses each, and have " + std::to_string(reserve_) +
                  "; raise the limit of addresses (ulimit -v) and of files (ulimit -f), or choose "
                  "dispatcher = alltoall");
    if (::ftruncate(file.get(), reserve_) != 0) throw Error(system_text("ftruncate of a memfd"));
    reserve_pages(file.get(), 0, end_);
    maps_[at(rank_)] = map_whole(file.get(), reserve_);
    new (maps_[at(rank_)]) Head{static_cast<std::uint64_t>(word), {}};
    file_ = file.release();
  });
  const Card mine = {::getpid(), file_, word};
  const std::vector<std::int64_t> cards = node.all_gather(std::span<const std::int64_t>(mine));
  agree(node, [&] {
    for (int peer = 0; peer < node.size(); ++peer) {
      Card card{};
      std::copy_n(cards.begin() + peer * std::ssize(card), card.size(), card.begin());
      if (peer != rank_) maps_[at(peer)] = map_of_peer(card, reserve_);
    }
  });
}

void NodeMemory::unmap() noexcept {
  for (std::byte* map : maps_)
    if (map != nullptr) ::munmap(map, at(reserve_));
  if (file_ >= 0) ::close(file_);
}

std::span<std::byte> NodeMemory::outbox() {
  const auto side = static_cast<Index>((meetings_ + 1) % 2);
  return {address(rank_, kPage + side * mailbox_bytes_), at(mailbox_bytes_)};
}

std::span<const std::byte> NodeMemory::inbox(int rank) const {
  const auto side = static_cast<Index>(meetings_ % 2);
  return {address(rank, kPage + side * mailbox_bytes_), at(mailbox_bytes_)};
}

void NodeMemory::meet() {
  ++meetings_;
  head(maps_[at(rank_)]).meetings.store(meetings_, std::memory_order_release);
  for (int rank = 0; rank < size(); ++rank)
    wait_until(head(maps_[at(rank)]).meetings, meetings_, board_, shown_rank(rank));
  give_back_released();
}

std::optional<Index> NodeMemory::offset_of(const void* place) const {
  const std::ptrdiff_t offset = static_cast<const std::byte*>(place) - maps_[at(rank_)];
  if (place == nullptr || offset < 0 || offset >= end_) return std::nullopt;
  return offset;
}

NodeMemory::Extent NodeMemory::allocate(Index bytes) {
  const Index unit = bytes >= kHugePage ? kHugePage : kPage;
  const Index whole = rounded_up(std::max<Index>(bytes, 1), unit);
  // Giving back must not fail, so it finds its room: gaps lie between blocks, at most one more than these.
  released_.reserve(at(blocks_ + 1));
  free_.reserve(at(blocks_ + 2));
  const std::optional<Extent> gap = take_free(whole, unit);
  const Extent extent = gap ? *gap : take_at_end(bytes, unit);
  try {
    reserve_pages(file_, extent.offset, whole);
  } catch (...) {
    make_free(extent);
    throw;
  }
  bytes_ += whole;
  ++blocks_;
  return extent;
}

/// Behind the last block in use: a block that grows at the end does not leave its old addresses behind.
NodeMemory::Extent NodeMemory::take_at_end(Index bytes, Index unit) {
  const bool extends = !free_.empty() && free_.back().offset + free_.back().bytes == end_;
  const Index begin = extends ? free_.back().offset : end_;
  const Extent taken{rounded_up(begin, unit), rounded_up(std::max<Index>(bytes, 1), unit)};
  if (taken.offset + taken.bytes > reserve_)
    throw Error("a block of " + std::to_string(bytes) + " bytes does not fit behind the " +
                std::to_string(begin) + " bytes of addresses that were used of " + std::to_string(reserve_) +
                "; choose fewer tokens a step, or dispatcher = alltoall, or raise the limit "
                "of addresses if there is one (ulimit -v)");
  if (extends) free_.pop_back();
  if (taken.offset > begin) make_free({begin, taken.offset - begin});
  end_ = taken.offset + taken.bytes;
  return taken;
}

/// From the smallest gap that has room, so that large ones stay whole.
std::optional<NodeMemory::Extent> NodeMemory::take_free(Index bytes, Index unit) {
  const auto begins = [unit](const Extent& gap) { return rounded_up(gap.offset, unit); };
  auto best = free_.end();
  for (auto gap = free_.begin(); gap != free_.end(); ++gap)
    if (begins(*gap) + bytes <= gap->offset + gap->bytes && (best == free_.end() || gap->bytes < best->bytes))
      best = gap;
  if (best == free_.end()) return std::nullopt;
  const Extent gap = *best, taken{begins(gap), bytes};
  free_.erase(best);
  const Index taken_end = taken.offset + bytes;
  if (taken.offset > gap.offset) make_free({gap.offset, taken.offset - gap.offset});
  if (gap.offset + gap.bytes > taken_end) make_free({taken_end, gap.offset + gap.bytes - taken_end});
  return taken;
}

void NodeMemory::make_free(Extent extent) {
  auto next = std::ranges::lower_bound(free_, extent.offset, {}, &Extent::offset);
  if (next != free_.end() && extent.offset + extent.bytes == next->offset) {
    extent.bytes += next->bytes;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == extent.offset)
    std::prev(next)->bytes += extent.bytes;
  else
    free_.insert(next, extent);
}

void NodeMemory::release(Extent extent) noexcept {
  released_.push_back(extent);
}

void NodeMemory::give_back_released() noexcept {
  for (const Extent& extent : released_) {
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, extent.offset, extent.bytes);
    bytes_ -= extent.bytes;
    --blocks_;
    make_free(extent);
  }
  released_.clear();
}

}  // namespace moeloom
