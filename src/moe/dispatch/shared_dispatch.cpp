#include "moeloom/moe/dispatch/shared_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstring>

#include "dispatch/conservation.hpp"
#include "dispatch/row_copy.hpp"
#include "dispatch/slot_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 16;

}  // namespace

Index SharedDispatch::mailbox_bytes(Index num_experts) {
  return std::max<Index>((num_experts + 1) * static_cast<Index>(sizeof(std::int64_t)),
                         NodeRows::mailbox_bytes());
}

SharedDispatch::SharedDispatch(const Communicator& ep, Index num_experts, std::shared_ptr<NodeMemory> memory)
    : node_(std::move(memory)), num_experts_(num_experts) {
  require(node_.memory().size() == ep.size() && node_.memory().rank() == ep.rank(),
          "the shared dispatcher needs the node memory of the ranks of ep");
  require(std::ssize(node_.memory().outbox()) >= mailbox_bytes(num_experts),
          "the node memory's mailbox has no room for the counts of every expert");
}

void SharedDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  NodeMemory& memory = node_.memory();
  plan_sending(topk_idx, top_k, num_experts_, memory.size(), plan);
  const std::size_t bytes = at(num_experts_) * sizeof(std::int64_t);
  std::memcpy(memory.outbox().data(), plan.tokens_per_expert.data(), bytes);
  const std::int64_t told = plan.places();  // of all receivers: each of them sees all counts
  std::memcpy(memory.outbox().data() + bytes, &told, sizeof(told));
  memory.meet();
  const LandingCounts counts = landing_counts(num_experts_, memory.size(), memory.rank(), [&](Index source) {
    const auto* inbox = reinterpret_cast<const std::int64_t*>(memory.inbox(static_cast<int>(source)).data());
    const std::span of_experts(inbox, at(num_experts_));
    check_told_in_all(source, of_experts, inbox[num_experts_]);
    return of_experts;
  });
  plan_landing(counts, topk_idx, memory.rank(), plan, make_own<SharedPlan>(plan).landings);
}

/// Nobody meets: who knows the counts of all knows that all have left the combine before.
void SharedDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
                          DispatchPlan& plan) {
  const Index rank = node_.memory().rank();
  plan_sending(topk_idx, top_k, counts.experts, counts.ranks, plan);
  plan_landing(landing_counts(counts, rank), topk_idx, rank, plan, make_own<SharedPlan>(plan).landings);
}

void SharedDispatch::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                              std::optional<ScalarsOut> scalars) {
  const std::vector<Landing>& landings = own_of<SharedPlan>(plan, "shared").landings;
  const Index cols = tokens.cols;
  const RowWriter write(plan.places(), cols);
  node_.open(rows, plan.rows(), cols, scalars.has_value());
  parallel_blocks(plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    for (Index slot = begin * plan.top_k; slot < end * plan.top_k; ++slot) {
      const Landing& to = landings[at(slot)];
      if (!to.exists()) continue;
      write(tokens.row(slot / plan.top_k), node_.rows_of(to.rank) + to.row * cols);
      if (scalars) node_.scalars_of(to.rank)[to.row] = scalars->slots[at(slot)];
    }
    write.finish();
  });
  node_.close(scalars);
}

void SharedDispatch::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
                             std::optional<ScalarsBack> scalars) {
  const std::vector<Landing>& landings = own_of<SharedPlan>(plan, "shared").landings;
  node_.show(rows, scalars);
  const auto row_of = [&](Index slot) {
    const Landing& from = landings[at(slot)];
    return node_.rows_of(from.rank) + from.row * rows.cols();
  };
  sum_slots(plan, kTokensPerTask, row_of, tokens, mode);
  if (!scalars) return;
  scalars->slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot) {
    const Landing& from = landings[at(slot)];
    scalars->slots[at(slot)] = from.exists() ? node_.scalars_of(from.rank)[from.row] : 0;
  }
}

}  // namespace moeloom
