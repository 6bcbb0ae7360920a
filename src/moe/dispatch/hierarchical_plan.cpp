// What crosses between nodes, and in which chunk.
#include "comm/messages.hpp"
#include "moe/dispatch/hierarchical_dispatch.hpp"

#include <cstring>
#include <limits>
#include <numeric>

#include "dispatch/chunk_courier.hpp"
#include "dispatch/conservation.hpp"
#include "dispatch/count_exchange.hpp"

namespace moeloom {
namespace {

constexpr Index kFloatsPerCopy = sizeof(CrossingCopy) / sizeof(float);

std::span<float> as_floats(std::span<CrossingCopy> copies) {
  return {reinterpret_cast<float*>(copies.data()), copies.size() * kFloatsPerCopy};
}
std::span<const float> as_floats(std::span<const CrossingCopy> copies) {
  return {reinterpret_cast<const float*>(copies.data()), copies.size() * kFloatsPerCopy};
}

}  // namespace

void HierarchicalDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts_, ep_->size(), plan);
  if (!crosses()) return plan_crossing(topk_idx, counts_of_node(plan), {}, plan);
  const NodeMap& nodes = courier_->settings().nodes;
  // Beside its counts a rank tells those that it sends copies to how many there are.
  std::vector<std::int64_t> copies(at(ep_->size()));
  for (const Index to : courier_->routes().out)
    copies[at(to)] = rows_for_node(nodes, nodes.node_of[at(to)], plan.sent_per_rank);
  ReceivedCounts received = exchange_counts(*ep_, plan.tokens_per_expert, plan.sent_per_rank, copies);
  LandingCounts counts{.first_rows = exchange_first_rows(*ep_, received.of_experts, num_experts_),
                       .received = std::move(received.of_experts)};
  std::vector<Index> copies_per_route;
  for (const Index from : courier_->routes().in) copies_per_route.push_back(received.beside[at(from)]);
  plan_crossing(topk_idx, counts, copies_per_route, plan);
}

LandingCounts HierarchicalDispatch::counts_of_node(const DispatchPlan& plan) const {
  NodeMemory& memory = courier_->node().memory();
  const std::size_t bytes = at(num_experts_) * sizeof(std::int64_t);
  std::memcpy(memory.outbox().data(), plan.tokens_per_expert.data(), bytes);
  const std::int64_t told = plan.places();  // of all receivers: each of them sees all counts
  std::memcpy(memory.outbox().data() + bytes, &told, sizeof(told));
  memory.meet();
  return landing_counts(num_experts_, memory.size(), memory.rank(), [&](Index source) {
    const auto* inbox = reinterpret_cast<const std::int64_t*>(memory.inbox(static_cast<int>(source)).data());
    const std::span of_experts(inbox, at(num_experts_));
    check_told_in_all(source, of_experts, inbox[num_experts_]);
    return of_experts;
  });
}

void HierarchicalDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k,
                                const SourceCounts& counts, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, counts.experts, counts.ranks, plan);
  const NodeMap& nodes = courier_->settings().nodes;
  const Index here = nodes.node_of[at(ep_->rank())];
  std::vector<Index> copies_per_route;
  for (const Index from : courier_->routes().in) {
    Index copies = 0;
    for (const Index holder : nodes.members[at(here)]) {
      const ExpertRange held = experts_of(counts.experts, counts.ranks, holder);
      const auto first = counts.of_source(from).begin() + held.begin;
      copies += std::reduce(first, first + held.count, Index{0});
    }
    copies_per_route.push_back(copies);
  }
  plan_crossing(topk_idx, landing_counts(counts, ep_->rank()), copies_per_route, plan);
}

void HierarchicalDispatch::plan_crossing(std::span<const std::int32_t> topk_idx, const LandingCounts& counts,
                                         std::span<const Index> copies_per_route, DispatchPlan& plan) {
  HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
  plan_landing(counts, topk_idx, ep_->rank(), plan, own.landings);
  if (!crosses()) {
    own.crossing = {};
    own.chunks = {.chunks = chunks_};
    cut(plan);
    return;
  }
  plan_leaving({courier_->settings().nodes, courier_->routes(), ep_->rank(), courier_->settings().combine},
               plan, own);
  plan_arriving(exchange_copies(own.crossing, copies_per_route), copies_per_route, own.crossing);
  own.chunks = plan_crossing_chunks(courier_->settings().nodes, courier_->routes(), ep_->rank(), own.crossing,
                                    cut(plan));
}

std::vector<std::int64_t> HierarchicalDispatch::cut(DispatchPlan& plan) const {
  std::vector<std::int64_t> first_rows;
  if (chunks_ == 1) {  // as every plan is at first
    for (int rank = 0; rank < ep_->size(); ++rank)
      first_rows.insert(first_rows.end(), {0, std::numeric_limits<std::int32_t>::max()});
    return first_rows;
  }
  const GroupedRows rows = plan.grouped_rows();
  std::vector<Index> rows_per_expert;
  for (Index expert = 0; expert < rows.groups(); ++expert) rows_per_expert.push_back(rows.of_group(expert));
  // Of each rank the first expert of every chunk, then its first row, which is where the others find it.
  std::vector<std::int64_t> mine = cut_experts(rows_per_expert, chunks_);
  const std::size_t places = mine.size();
  Index expert = 0, row = 0;
  for (std::size_t place = 0; place < places; ++place) {
    while (expert < mine[place]) row += rows_per_expert[at(expert++)];
    mine.push_back(row);
  }
  const std::vector<std::int64_t> all = ep_->all_gather(std::span<const std::int64_t>(mine));
  std::vector<std::int64_t> cuts;
  for (auto of_rank = all.begin(); of_rank != all.end(); of_rank += std::ssize(mine)) {
    const auto middle = of_rank + static_cast<std::ptrdiff_t>(places);
    cuts.insert(cuts.end(), of_rank, middle);
    first_rows.insert(first_rows.end(), middle, of_rank + std::ssize(mine));
  }
  plan_chunks(cuts, ep_->rank(), plan);
  return first_rows;
}

std::vector<CrossingCopy> HierarchicalDispatch::exchange_copies(const CrossingPlan& crossing,
                                                                std::span<const Index> copies_per_route) {
  std::vector<CrossingCopy> arriving(at(std::reduce(copies_per_route.begin(), copies_per_route.end())));
  Messages messages(*ep_);
  std::span<CrossingCopy> into = arriving;
  for (std::size_t route = 0; route < courier_->routes().in.size(); ++route) {
    messages.receive(static_cast<int>(courier_->routes().in[route]),
                     as_floats(into.first(at(copies_per_route[route]))));
    into = into.subspan(at(copies_per_route[route]));
  }
  std::span<const CrossingCopy> from = crossing.leaving_copies;
  for (std::size_t route = 0; route < courier_->routes().out.size(); ++route) {
    const std::size_t copies = at(crossing.leaving[route].copies);
    const std::span<const float> told = as_floats(from.first(copies));
    planning_bytes_ += static_cast<Index>(told.size_bytes());
    messages.send(static_cast<int>(courier_->routes().out[route]), told);
    from = from.subspan(copies);
  }
  messages.finish();
  return arriving;
}

}  // namespace moeloom
