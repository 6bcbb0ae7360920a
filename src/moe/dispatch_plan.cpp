#include "moeloom/moe/dispatch_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <numeric>

namespace moeloom {
namespace {

void count_tokens(std::span<const std::int32_t> topk_idx, Index num_experts,
                  std::vector<Index>& tokens_per_expert) {
  tokens_per_expert.assign(at(num_experts), 0);
  for (const std::int32_t expert : topk_idx) {
    require(expert >= 0 && expert < num_experts, "a chosen expert lies outside [0, num_experts)");
    ++tokens_per_expert[at(expert)];
  }
}

/// Places of equal experts follow slot number, which is token order: a token visits an expert once at most.
void order_by_expert(std::span<const std::int32_t> topk_idx, DispatchPlan& plan) {
  std::vector<Index> next(plan.tokens_per_expert.size());
  std::exclusive_scan(plan.tokens_per_expert.begin(), plan.tokens_per_expert.end(), next.begin(), Index{0});
  plan.slot_order.resize(topk_idx.size());
  plan.slot_place.resize(topk_idx.size());
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    const Index place = next[at(topk_idx[slot])]++;
    plan.slot_order[at(place)] = static_cast<Index>(slot);
    plan.slot_place[slot] = place;
  }
}

/// counts_of(source, expert) of the local experts -> what is known before any row has a place.
template <typename CountsOf>
void count_received(Index experts, CountsOf counts_of, DispatchPlan& plan) {
  plan.received_per_rank.assign(at(plan.ranks), 0);
  plan.rows_per_source.assign(at(experts * plan.ranks), 0);
  for (Index source = 0; source < plan.ranks; ++source) {
    for (Index expert = 0; expert < experts; ++expert) {
      const Index count = counts_of(source, expert);
      require(count >= 0, "a count of received rows is negative");
      plan.rows_per_source[at(expert * plan.ranks + source)] = count;
      plan.received_per_rank[at(source)] += count;
    }
  }
}

}  // namespace

Index DispatchPlan::rows() const {
  return std::reduce(rows_per_source.begin(), rows_per_source.end(), Index{0});
}

void plan_sending(std::span<const std::int32_t> topk_idx, Index top_k, Index num_experts, Index ranks,
                  DispatchPlan& plan) {
  require(top_k >= 1 && static_cast<Index>(topk_idx.size()) % top_k == 0, "topk_idx must be [tokens, top_k]");
  plan.tokens = static_cast<Index>(topk_idx.size()) / top_k;
  plan.top_k = top_k;
  plan.ranks = ranks;
  count_tokens(topk_idx, num_experts, plan.tokens_per_expert);
  order_by_expert(topk_idx, plan);
  plan.sent_per_rank.assign(at(ranks), 0);
  for (Index rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(num_experts, ranks, rank);
    const auto first = plan.tokens_per_expert.begin() + held.begin;
    plan.sent_per_rank[at(rank)] = std::reduce(first, first + held.count, Index{0});
  }
}

void plan_receiving(std::span<const std::int64_t> received_counts, DispatchPlan& plan) {
  const Index ranks = plan.ranks;
  require(static_cast<Index>(received_counts.size()) % ranks == 0,
          "received_counts must be [ep, local experts]");
  const Index experts = static_cast<Index>(received_counts.size()) / ranks;
  count_received(
      experts, [&](Index source, Index expert) { return received_counts[at(source * experts + expert)]; },
      plan);
  std::vector<Index> arrival(received_counts.size());  // where each chunk [source][expert] arrives
  std::exclusive_scan(received_counts.begin(), received_counts.end(), arrival.begin(), Index{0});
  plan.landing_order.clear();
  if (ranks == 1) return;
  plan.landing_order.reserve(at(plan.rows()));
  for (Index expert = 0; expert < experts; ++expert)
    for (Index source = 0; source < ranks; ++source)
      for (Index i = 0; i < plan.rows_per_source[at(expert * ranks + source)]; ++i)
        plan.landing_order.push_back(arrival[at(source * experts + expert)] + i);
}

void plan_landing(std::span<const std::int64_t> counts, std::span<const std::int32_t> topk_idx, Index rank,
                  DispatchPlan& plan) {
  const auto experts = std::ssize(plan.tokens_per_expert);
  require(std::ssize(counts) == plan.ranks * experts, "counts must be [ep, experts]");
  require(std::ssize(topk_idx) == plan.slots(), "plan_landing needs the choices that were planned");
  const ExpertRange mine = experts_of(experts, plan.ranks, rank);
  const auto count_of = [&](Index source, Index expert) { return counts[at(source * experts + expert)]; };
  count_received(
      mine.count, [&](Index source, Index local) { return count_of(source, mine.begin + local); }, plan);
  plan.landing_order.clear();

  // Of each expert: who holds it, and the row of this rank's slot that leaves at place 0, were it the
  // expert's.
  std::vector<Landing> origin(at(experts));
  Index place = 0;
  for (Index holder = 0; holder < plan.ranks; ++holder) {
    const ExpertRange held = experts_of(experts, plan.ranks, holder);
    Index row = 0;
    for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
      for (Index source = 0; source < plan.ranks; ++source) {
        if (source == rank) origin[at(expert)] = {holder, row - place};
        row += count_of(source, expert);
      }
      place += plan.tokens_per_expert[at(expert)];
    }
  }
  plan.landings.resize(topk_idx.size());
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    const Landing& from = origin[at(topk_idx[slot])];
    plan.landings[slot] = {from.rank, from.row + plan.slot_place[slot]};
  }
}

}  // namespace moeloom
