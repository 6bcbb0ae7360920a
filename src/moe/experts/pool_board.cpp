#include "moeloom/moe/experts/pool_board.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

namespace moeloom {
namespace {

constexpr std::size_t kLine = 64;

using Counter = std::atomic<std::uint64_t>;

/// Parts of about a block's rows each, cut at multiples of kGemmColumns: an expert of few rows is one task,
/// whose gradient is written from end to end.
void add_panels(PoolTask panel, PoolTask::Kind kind, Index cols, std::vector<PoolTask>& tasks) {
  const Index units = ceil_div(cols, kGemmColumns);
  const Index parts = std::clamp<Index>(panel.blocks, 1, units);
  panel.kind = kind;
  for (Index part = 0; part < parts; ++part) {
    panel.column = units * part / parts * kGemmColumns;
    panel.cols = std::min(cols, units * (part + 1) / parts * kGemmColumns) - panel.column;
    tasks.push_back(panel);
  }
}

void add_whole(PoolTask expert, PoolTask::Kind kind, std::vector<PoolTask>& tasks) {
  expert.kind = kind;
  tasks.push_back(expert);
}

void add_blocks(PoolTask expert, std::vector<PoolTask>& tasks) {
  const Index end = expert.row + expert.rows;
  for (PoolTask block = expert; block.row < end; block.row += kGemmRows) {
    block.rows = std::min(kGemmRows, end - block.row);
    tasks.push_back(block);
  }
}

/// Each expert as a task of all its rows, the largest first.
std::vector<PoolTask> experts_by_rows(const GroupedRows& rows) {
  std::vector<PoolTask> experts;
  Index first = 0;
  for (Index expert = 0; expert < rows.groups(); ++expert) {
    const Index count = rows.of_group(expert);
    experts.push_back({.expert = expert, .row = first, .rows = count, .blocks = ceil_div(count, kGemmRows)});
    first += count;
  }
  std::ranges::stable_sort(experts, std::greater(), &PoolTask::rows);
  return experts;
}

}  // namespace

void list_pool_tasks(const GroupedRows& rows, const PoolWork& work, std::vector<PoolTask>& tasks) {
  tasks.clear();
  const std::vector<PoolTask> experts = experts_by_rows(rows);
  for (const PoolTask& expert : experts) add_blocks(expert, tasks);
  for (const PoolTask& expert : experts) {
    if (expert.rows == 0 && !work.gradients_of_empty_experts) continue;
    if (work.gate_up_factors) add_whole(expert, PoolTask::Kind::kGateUpFactors, tasks);
    if (work.down_factors) add_whole(expert, PoolTask::Kind::kDownFactors, tasks);
    if (work.gate_up_panels) add_panels(expert, PoolTask::Kind::kGateUpPanel, work.hidden, tasks);
    if (work.down_panels) add_panels(expert, PoolTask::Kind::kDownPanel, work.inter, tasks);
  }
}

/// The tasks follow, then a counter an expert, then its rows by source.
struct PoolBoard::Head {
  alignas(kLine) Counter taken;
  alignas(kLine) Index tasks;
  Index experts;
  Index sources;
  PoolPlaces places;

  static std::size_t bytes(std::size_t tasks, std::size_t counts, std::size_t experts) {
    return sizeof(Head) + tasks * sizeof(PoolTask) + experts * sizeof(Counter) + counts * sizeof(Index);
  }
  PoolTask* first_task() { return reinterpret_cast<PoolTask*>(this + 1); }
  Counter* blocks_done() { return reinterpret_cast<Counter*>(first_task() + tasks); }
  Index* rows_per_source() { return reinterpret_cast<Index*>(blocks_done() + experts); }
};

PoolBoard::PoolBoard(std::shared_ptr<NodeMemory> memory)
    : memory_(std::move(memory)), mine_(memory_), boards_(at(memory_ ? memory_->size() : 0)) {
  require(memory_ != nullptr && std::ssize(memory_->outbox()) >= mailbox_bytes(),
          "a board that ranks share needs the node's memory, with a mailbox for its place");
}

Index PoolBoard::mailbox_bytes() {
  return sizeof(Index);
}

void PoolBoard::open(std::span<const PoolTask> tasks, const GroupedRows& rows, const PoolPlaces& places) {
  const std::size_t bytes = Head::bytes(tasks.size(), rows.rows_per_source.size(), at(rows.groups()));
  mine_.reshape_uninitialised(ceil_div(static_cast<Index>(bytes), sizeof(float)), 1);
  Head& mine = *new (mine_.view().data) Head{{}, std::ssize(tasks), rows.groups(), rows.sources, places};
  std::ranges::copy(tasks, mine.first_task());
  std::uninitialized_value_construct_n(mine.blocks_done(), rows.groups());
  std::ranges::copy(rows.rows_per_source, mine.rows_per_source());
  const Index offset = mine_.offset();
  std::memcpy(memory_->outbox().data(), &offset, sizeof offset);
  memory_->meet();
  for (int owner = 0; owner < owners(); ++owner) {
    Index theirs = 0;
    std::memcpy(&theirs, memory_->inbox(owner).data(), sizeof theirs);
    boards_[at(owner)] = memory_->address(owner, theirs);
  }
}

PoolBoard::Head& PoolBoard::head(int owner) const {
  return *std::launder(reinterpret_cast<Head*>(boards_[at(owner)]));
}

std::optional<PoolTask> PoolBoard::take(int owner) const {
  Head& board = head(owner);
  const auto tasks = static_cast<std::uint64_t>(board.tasks);
  // Looked at first, so that ranks which wait for the end do not fight for the line.
  if (board.taken.load(std::memory_order_relaxed) >= tasks) return std::nullopt;
  const std::uint64_t number = board.taken.fetch_add(1, std::memory_order_relaxed);
  if (number >= tasks) return std::nullopt;
  return board.first_task()[number];
}

void PoolBoard::block_is_done(int owner, Index expert) const {
  head(owner).blocks_done()[expert].fetch_add(1, std::memory_order_release);
}

void PoolBoard::wait_for_blocks(int owner, const PoolTask& gradient) const {
  wait_until(head(owner).blocks_done()[gradient.expert], static_cast<std::uint64_t>(gradient.blocks),
             memory_->board());
}

const PoolPlaces& PoolBoard::places(int owner) const {
  return head(owner).places;
}

GroupedRows PoolBoard::rows_of(int owner, Index expert) const {
  Head& board = head(owner);
  return {{board.rows_per_source() + expert * board.sources, at(board.sources)}, board.sources};
}

}  // namespace moeloom
