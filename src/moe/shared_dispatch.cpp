#include "moeloom/moe/shared_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstring>

#include "row_copy.hpp"
#include "row_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 16;

/// A mailbox's content before rows travel.
struct Places {
  Index rows = 0;
  Index scalars = 0;
};

}  // namespace

Index SharedDispatch::mailbox_bytes(Index num_experts) {
  return std::max<Index>(num_experts * static_cast<Index>(sizeof(std::int64_t)), sizeof(Places));
}

SharedDispatch::SharedDispatch(const Communicator& ep, Index num_experts, std::shared_ptr<NodeMemory> memory)
    : memory_(std::move(memory)),
      num_experts_(num_experts),
      counts_(at(ep.size() * num_experts)),
      rows_of_(at(ep.size())),
      scalars_of_(at(ep.size())),
      landed_scalars_(memory_),
      returning_scalars_{RowBuffer(memory_), RowBuffer(memory_)} {
  require(memory_ != nullptr && memory_->size() == ep.size() && memory_->rank() == ep.rank(),
          "the shared dispatcher needs the node memory of the ranks of ep");
  require(std::ssize(memory_->outbox()) >= mailbox_bytes(num_experts),
          "the node memory's mailbox has no room for the counts of every expert");
}

void SharedDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts_, memory_->size(), plan);
  const std::size_t bytes = at(num_experts_) * sizeof(std::int64_t);
  std::memcpy(memory_->outbox().data(), plan.tokens_per_expert.data(), bytes);
  memory_->meet();
  for (int rank = 0; rank < memory_->size(); ++rank)
    std::memcpy(counts_.data() + rank * num_experts_, memory_->inbox(rank).data(), bytes);
  plan_landing(counts_, topk_idx, memory_->rank(), plan);
}

void SharedDispatch::prepare(RowBuffer& rows, Index count, Index cols) const {
  if (rows.memory() != memory_.get()) rows = RowBuffer(memory_);
  rows.reshape_uninitialised(count, cols);
}

void SharedDispatch::exchange_places(const RowBuffer& rows, const RowBuffer& scalars) {
  const Places mine{rows.offset(), scalars.offset()};
  std::memcpy(memory_->outbox().data(), &mine, sizeof mine);
  memory_->meet();
  for (int rank = 0; rank < memory_->size(); ++rank) {
    Places places;
    std::memcpy(&places, memory_->inbox(rank).data(), sizeof places);
    rows_of_[at(rank)] = reinterpret_cast<float*>(memory_->address(rank, places.rows));
    scalars_of_[at(rank)] = reinterpret_cast<float*>(memory_->address(rank, places.scalars));
  }
}

void SharedDispatch::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                              std::optional<ScalarsOut> scalars) {
  require(std::ssize(plan.landings) == plan.slots(), "the shared dispatcher needs a plan of its own");
  const Index cols = tokens.cols;
  const bool around = leaves_cache(plan.slots(), cols);
  prepare(rows, plan.rows(), cols);
  if (scalars) landed_scalars_.reshape_uninitialised(plan.rows(), 1);
  exchange_places(rows, landed_scalars_);
  parallel_blocks(plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    for (Index slot = begin * plan.top_k; slot < end * plan.top_k; ++slot) {
      const Landing& to = plan.landings[at(slot)];
      float* place = rows_of_[at(to.rank)] + to.row * cols;
      if (around)
        copy_row_around_cache(tokens.row(slot / plan.top_k), cols, place);
      else
        copy_row(tokens.row(slot / plan.top_k), cols, place);
      if (scalars) scalars_of_[at(to.rank)][to.row] = scalars->slots[at(slot)];
    }
    if (around) finish_rows();
  });
  memory_->meet();
  if (!scalars) return;
  const std::span<const float> landed = landed_scalars_.view().flat();
  scalars->rows.assign(landed.begin(), landed.end());
}

void SharedDispatch::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
                             std::optional<ScalarsBack> scalars) {
  require(std::ssize(plan.landings) == plan.slots(), "the shared dispatcher needs a plan of its own");
  require(rows.memory() == memory_.get(), "combine needs rows that the same dispatcher prepared");
  std::swap(returning_scalars_[0], returning_scalars_[1]);
  RowBuffer& returning = returning_scalars_[0];
  if (scalars) {
    returning.reshape_uninitialised(plan.rows(), 1);
    std::ranges::copy(scalars->rows, returning.view().data);
  }
  exchange_places(rows, returning);
  parallel_blocks(plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Landing* from = plan.landings.data() + t * plan.top_k;
      const auto row_of = [&](Index k) -> const float* {
        return rows_of_[at(from[k].rank)] + from[k].row * rows.cols();
      };
      sum_rows(plan.top_k, rows.cols(), row_of, tokens.row(t), mode);
    }
  });
  if (!scalars) return;
  scalars->slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot) {
    const Landing& from = plan.landings[at(slot)];
    scalars->slots[at(slot)] = scalars_of_[at(from.rank)][from.row];
  }
}

}  // namespace moeloom
