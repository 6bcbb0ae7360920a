#include "moe/dispatch/dispatch_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"

#include <numeric>
#include <utility>

namespace moeloom {
namespace {

constexpr Index kSlotsPerTask = 4096;

/// Of each task its slots of each expert [tasks, E]: integers, so that no result depends on the threads.
std::vector<Index> count_by_task(std::span<const std::int32_t> topk_idx, Index num_experts) {
  std::vector<Index> counts(at(ceil_div(std::ssize(topk_idx), kSlotsPerTask) * num_experts));
  parallel_blocks(std::ssize(topk_idx), kSlotsPerTask, [&](Index begin, Index end) {
    Index* const mine = counts.data() + begin / kSlotsPerTask * num_experts;
    for (Index slot = begin; slot < end; ++slot) {
      const std::int32_t expert = topk_idx[at(slot)];
      if (expert == kNoExpert) continue;
      require(expert >= 0 && expert < num_experts, "a chosen expert lies outside [0, num_experts)");
      ++mine[expert];
    }
  });
  return counts;
}

std::vector<Index> sum_of_tasks(const std::vector<Index>& counts, Index num_experts) {
  std::vector<Index> sums(at(num_experts));
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

/// [tasks, E] counts -> the place of a task's first slot of each expert.
void become_places(std::vector<Index>& counts, Index num_experts) {
  Index next = 0;
  for (Index expert = 0; expert < num_experts; ++expert)
    for (std::size_t i = at(expert); i < counts.size(); i += at(num_experts))
      next += std::exchange(counts[i], next);
}

/// Places of equal experts follow slot number, which is token order: a token visits an expert once at most.
void order_by_expert(std::span<const std::int32_t> topk_idx, std::vector<Index> counts, DispatchPlan& plan) {
  const Index experts = std::ssize(plan.tokens_per_expert);
  const auto& rows = plan.tokens_per_expert;
  become_places(counts, experts);
  plan.slot_order.resize(at(std::reduce(rows.begin(), rows.end(), Index{0})));
  plan.slot_place.resize(topk_idx.size());
  parallel_blocks(std::ssize(topk_idx), kSlotsPerTask, [&](Index begin, Index end) {
    Index* const next = counts.data() + begin / kSlotsPerTask * experts;
    for (Index slot = begin; slot < end; ++slot) {
      const std::int32_t expert = topk_idx[at(slot)];
      if (expert == kNoExpert) {
        plan.slot_place[at(slot)] = -1;
        continue;
      }
      const Index place = next[expert]++;
      plan.slot_order[at(place)] = slot;
      plan.slot_place[at(slot)] = place;
    }
  });
}

/// What is known before any row has a place, all of it one chunk.
void count_received(std::span<const std::int64_t> received_counts, DispatchPlan& plan) {
  require(std::ssize(received_counts) % plan.ranks == 0, "received_counts must be [ep, local experts]");
  const Index experts = std::ssize(received_counts) / plan.ranks;
  plan.received_per_rank.assign(at(plan.ranks), 0);
  plan.rows_per_source.assign(received_counts.size(), 0);
  for (Index source = 0; source < plan.ranks; ++source) {
    for (Index expert = 0; expert < experts; ++expert) {
      const Index count = received_counts[at(source * experts + expert)];
      require(count >= 0, "a count of received rows is negative");
      plan.rows_per_source[at(expert * plan.ranks + source)] = count;
      plan.received_per_rank[at(source)] += count;
    }
  }
  plan_whole(plan);
}

}  // namespace

Index DispatchPlan::rows() const {
  return std::reduce(rows_per_source.begin(), rows_per_source.end(), Index{0});
}

std::vector<Index> count_choices(std::span<const std::int32_t> topk_idx, Index num_experts) {
  return sum_of_tasks(count_by_task(topk_idx, num_experts), num_experts);
}

void plan_sending(std::span<const std::int32_t> topk_idx, Index top_k, Index num_experts, Index ranks,
                  DispatchPlan& plan) {
  require(top_k >= 1 && static_cast<Index>(topk_idx.size()) % top_k == 0, "topk_idx must be [tokens, top_k]");
  plan.tokens = static_cast<Index>(topk_idx.size()) / top_k;
  plan.top_k = top_k;
  plan.ranks = ranks;
  std::vector<Index> counts = count_by_task(topk_idx, num_experts);
  plan.tokens_per_expert = sum_of_tasks(counts, num_experts);
  order_by_expert(topk_idx, std::move(counts), plan);
  plan.sent_per_rank.assign(at(ranks), 0);
  for (Index rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(num_experts, ranks, rank);
    const auto first = plan.tokens_per_expert.begin() + held.begin;
    plan.sent_per_rank[at(rank)] = std::reduce(first, first + held.count, Index{0});
  }
}

void plan_receiving(std::span<const std::int64_t> received_counts, DispatchPlan& plan) {
  count_received(received_counts, plan);
  const Index ranks = plan.ranks;
  const Index experts = std::ssize(received_counts) / ranks;
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

LandingCounts landing_counts(Index num_experts, Index ranks, Index rank,
                             const std::function<std::span<const std::int64_t>(Index source)>& counts_of) {
  const ExpertRange mine = experts_of(num_experts, ranks, rank);
  LandingCounts landing;
  std::vector<Index> of_all(at(num_experts));
  landing.received.reserve(at(ranks * mine.count));
  for (Index source = 0; source < ranks; ++source) {
    const std::span<const std::int64_t> counts = counts_of(source);
    require(std::ssize(counts) == num_experts, "a rank's counts must be [experts]");
    if (source == rank) landing.first_rows = of_all;
    for (std::size_t expert = 0; expert < counts.size(); ++expert) of_all[expert] += counts[expert];
    const auto first = counts.begin() + mine.begin;
    landing.received.insert(landing.received.end(), first, first + mine.count);
  }
  // So far these are the rows from ranks before this one; those of a holder's experts before it precede them.
  for (Index holder = 0; holder < ranks; ++holder) {
    const ExpertRange held = experts_of(num_experts, ranks, holder);
    Index row = 0;
    for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
      landing.first_rows[at(expert)] += row;
      row += of_all[at(expert)];
    }
  }
  return landing;
}

std::vector<Index> first_rows_of_sources(std::span<const std::int64_t> received, Index ranks) {
  const Index experts = std::ssize(received) / ranks;
  std::vector<Index> first(received.size());
  Index row = 0;
  for (Index expert = 0; expert < experts; ++expert)
    for (Index source = 0; source < ranks; ++source) {
      first[at(source * experts + expert)] = row;
      row += received[at(source * experts + expert)];
    }
  return first;
}

LandingCounts landing_counts(const SourceCounts& counts, Index rank) {
  return landing_counts(counts.experts, counts.ranks, rank,
                        [&](Index source) { return counts.of_source(source); });
}

void plan_landing(const LandingCounts& counts, std::span<const std::int32_t> topk_idx, Index rank,
                  DispatchPlan& plan, std::vector<Landing>& landings) {
  const auto experts = std::ssize(plan.tokens_per_expert);
  require(std::ssize(counts.first_rows) == experts, "where a rank's rows begin must be [experts]");
  require(std::ssize(counts.received) == plan.ranks * experts_of(experts, plan.ranks, rank).count,
          "received counts must be [ep, local experts]");
  require(std::ssize(topk_idx) == plan.slots(), "plan_landing needs the choices that were planned");
  count_received(counts.received, plan);
  plan.landing_order.clear();

  // Of each expert: who holds it, and the row of this rank's slot that leaves at place 0, were it the
  // expert's.
  std::vector<Landing> origin(at(experts));
  Index place = 0;
  for (Index holder = 0; holder < plan.ranks; ++holder) {
    const ExpertRange held = experts_of(experts, plan.ranks, holder);
    for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
      origin[at(expert)] = {holder, counts.first_rows[at(expert)] - place};
      place += plan.tokens_per_expert[at(expert)];
    }
  }
  landings.resize(topk_idx.size());
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    if (topk_idx[slot] == kNoExpert) {
      landings[slot] = {-1, -1};
      continue;
    }
    const Landing& from = origin[at(topk_idx[slot])];
    landings[slot] = {from.rank, from.row + plan.slot_place[slot]};
  }
}

}  // namespace moeloom
