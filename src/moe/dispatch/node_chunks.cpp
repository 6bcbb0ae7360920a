#include "dispatch/node_chunks.hpp"

#include "moeloom/base/errors.hpp"

#include <cstring>
#include <new>

namespace moeloom {
namespace {

/// In the memory of the rank that tells them.
struct Places {
  Index rows, row_scalars, results, result_scalars, flags;
};

}  // namespace

/// Each on a line of its own: others look at one while the other is written.
struct NodeChunks::Flags {
  struct alignas(64) Line {
    std::atomic<std::uint64_t> count{0};
  };
  Line lines[2];
};

NodeChunks::NodeChunks(std::shared_ptr<NodeMemory> memory, Index most)
    : memory_(std::move(memory)), most_(most), row_scalars_(memory_), result_scalars_(memory_) {
  require(memory_ != nullptr, "rows of a node need its memory");
  require(std::ssize(memory_->outbox()) >= mailbox_bytes(),
          "the node memory's mailbox has no room for where rows lie");
  flags_ = {memory_, sizeof(Flags)};
  new (flags_.data()) Flags;
  members_.resize(at(memory_->size()));
  flags_of_.resize(at(memory_->size()));
}

Index NodeChunks::mailbox_bytes() {
  return sizeof(Places);
}

void NodeChunks::open(RowBuffer& rows, RowBuffer& results, Index count, Index cols) {
  for (RowBuffer* buffer : {&rows, &results}) buffer->reshape_in(memory_, count, cols);
  for (RowBuffer* buffer : {&row_scalars_, &result_scalars_}) buffer->reshape_uninitialised(count, 1);
  const Places mine{rows.offset(), row_scalars_.offset(), results.offset(), result_scalars_.offset(),
                    flags_.offset()};
  std::memcpy(memory_->outbox().data(), &mine, sizeof mine);
  base_ += static_cast<std::uint64_t>(most_);
  memory_->meet();
  for (int member = 0; member < memory_->size(); ++member) {
    Places places;
    std::memcpy(&places, memory_->inbox(member).data(), sizeof places);
    const auto floats = [&](Index offset) {
      return reinterpret_cast<float*>(memory_->address(member, offset));
    };
    members_[at(member)] = {floats(places.rows), floats(places.row_scalars), floats(places.results),
                            floats(places.result_scalars)};
    flags_of_[at(member)] = std::launder(reinterpret_cast<Flags*>(memory_->address(member, places.flags)));
  }
}

void NodeChunks::tell(Counter counter, Index count) {
  flags_of_[at(memory_->rank())]->lines[counter].count.store(base_ + static_cast<std::uint64_t>(count),
                                                             std::memory_order_release);
}

int NodeChunks::behind(Counter counter, Index least) const {
  const std::uint64_t wanted = base_ + static_cast<std::uint64_t>(least);
  for (int member = 0; member < memory_->size(); ++member)
    if (flags_of_[at(member)]->lines[counter].count.load(std::memory_order_acquire) < wanted) return member;
  return -1;
}

}  // namespace moeloom
