#include "moeloom/measure/synthetic_workload.hpp"

#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace moeloom {
namespace {

struct Row {
  std::string_view name;
  bool is_drawn = false;  // each token's experts by their heat; else slots are dealt to experts in turn
};
constexpr std::array<Row, kWorkloads.size()> kTable = {{{"balanced"},
                                                        {"random", true},
                                                        {"zipf", true},
                                                        {"hot"},
                                                        {"hot-experts", true},
                                                        {"hot-rank", true},
                                                        {"spread-hot", true},
                                                        {"ragged-sources"},
                                                        {"zero-load"},
                                                        {"rotating-hot", true},
                                                        {"burst"}}};
const Row& row_of(SyntheticWorkload workload) {
  return kTable[static_cast<std::size_t>(workload)];
}

bool is_burst(SyntheticWorkload workload, Index step) {
  return workload == SyntheticWorkload::kBurst && step % kBurstPeriod == kBurstPeriod - 1;
}

/// Numbers of a step that no other step, seed or workload has.
CounterRandom random_of(SyntheticWorkload workload, const char* what, std::uint64_t seed, Index step) {
  return {seed + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15u,
          stream_of(std::string(name_of(workload)) + "/" + what)};
}

std::vector<std::int32_t> shuffled(Index n, const CounterRandom& random) {
  std::vector<std::int32_t> order(at(n));
  std::iota(order.begin(), order.end(), 0);
  for (Index i = n; i > 1; --i) {
    const auto bound = static_cast<std::uint64_t>(i);
    std::swap(order[at(i - 1)], order[random.below(bound, bound)]);
  }
  return order;
}

/// Experts that share the heat of hot-rank: one block on one rank up to ep = 8.
Index hot_experts(Index experts) {
  return std::max<Index>(experts / 8, 1);
}

/// What each expert is drawn with, before a token's earlier draws are left out.
std::vector<double> heat_of(SyntheticWorkload workload, const WorkloadShape& shape, std::uint64_t seed,
                            Index step) {
  const Index experts = shape.experts;
  const Index hot = hot_experts(experts);
  std::vector<double> heat(at(experts), 1);
  if (workload == SyntheticWorkload::kRandom) return heat;
  if (workload == SyntheticWorkload::kZipf) {
    for (Index i = 0; i < experts; ++i) heat[at(i)] = 1 / static_cast<double>(i + 1);
    return heat;
  }
  if (workload == SyntheticWorkload::kHotExperts) {
    // The favourites stay the same from step to step: a router has them for long.
    const auto order = shuffled(experts, random_of(workload, "favourites", seed, 0));
    for (Index i = 0; i < experts; ++i) heat[at(order[at(i)])] = std::pow(static_cast<double>(i + 1), -1.2);
    return heat;
  }
  const Index first = workload == SyntheticWorkload::kRotatingHot ? step * hot % experts : 0;
  const Index apart = workload == SyntheticWorkload::kSpreadHot ? experts / hot : 1;
  const double as_all_others = static_cast<double>(experts - hot) / static_cast<double>(hot);
  for (Index i = 0; i < hot; ++i) heat[at((first + i * apart) % experts)] = std::max(as_all_others, 1.0);
  return heat;
}

/// K draws without replacement: the K largest of log(heat) + Gumbel noise.
std::vector<std::int32_t> draw(SyntheticWorkload workload, const WorkloadShape& shape, std::uint64_t seed,
                               Index step, TokenRange range) {
  const std::vector<double> heat = heat_of(workload, shape, seed, step);
  const CounterRandom random = random_of(workload, "draws", seed, step);
  std::vector<std::int32_t> topk_idx;
  topk_idx.reserve(at(range.count * shape.top_k));
  std::vector<double> score(heat.size());
  std::vector<std::int32_t> order(heat.size());
  for (Index token = range.begin; token < range.begin + range.count; ++token) {
    for (std::size_t e = 0; e < heat.size(); ++e) {
      const double uniform = random.uniform(static_cast<std::uint64_t>(token) * heat.size() + e);
      score[e] =
          std::log(heat[e]) - std::log(-std::log(std::max(uniform, std::numeric_limits<double>::min())));
    }
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + shape.top_k;
    std::partial_sort(order.begin(), end, order.end(), [&](std::int32_t a, std::int32_t b) {
      return score[at(a)] != score[at(b)] ? score[at(a)] > score[at(b)] : a < b;
    });
    topk_idx.insert(topk_idx.end(), order.begin(), end);
  }
  return topk_idx;
}

/// Slots are dealt to the first `loaded` experts in turn, in an order that changes from step to step.
std::vector<std::int32_t> deal(SyntheticWorkload workload, const WorkloadShape& shape, Index loaded,
                               std::uint64_t seed, Index step, TokenRange range) {
  const auto order = shuffled(loaded, random_of(workload, "deal", seed, step));
  std::vector<std::int32_t> topk_idx(at(range.count * shape.top_k));
  for (std::size_t i = 0; i < topk_idx.size(); ++i)
    topk_idx[i] = order[at((range.begin * shape.top_k + static_cast<Index>(i)) % loaded)];
  return topk_idx;
}

/// A row of every token, or of every other if it has but one, to expert 0; the others share the rest evenly.
std::vector<std::int32_t> deal_around_one(const WorkloadShape& shape, std::uint64_t seed, Index step,
                                          TokenRange range) {
  if (shape.experts == 1) return std::vector<std::int32_t>(at(range.count * shape.top_k));
  const Index others = shape.experts - 1;
  const auto order = shuffled(others, random_of(SyntheticWorkload::kHot, "deal", seed, step));
  std::vector<std::int32_t> topk_idx;
  for (Index token = range.begin; token < range.begin + range.count; ++token)
    for (Index k = 0; k < shape.top_k; ++k) {
      const bool is_hot = k == 0 && (shape.top_k > 1 || token % 2 == 0);
      const Index slot = shape.top_k > 1 ? token * (shape.top_k - 1) + k - 1 : token / 2;
      topk_idx.push_back(is_hot ? 0 : 1 + order[at(slot % others)]);
    }
  return topk_idx;
}

Index loaded_experts(SyntheticWorkload workload, Index experts) {
  return workload == SyntheticWorkload::kZeroLoad ? experts / 2 : experts;
}

}  // namespace

std::string_view name_of(SyntheticWorkload workload) {
  return row_of(workload).name;
}

SyntheticWorkload synthetic_workload_named(std::string_view name) {
  std::string known;
  for (const SyntheticWorkload workload : kWorkloads) {
    if (name_of(workload) == name) return workload;
    known += (known.empty() ? "" : ", ") + std::string(name_of(workload));
  }
  throw std::invalid_argument("unknown routing \"" + std::string(name) + "\"; known: " + known);
}

std::optional<std::string> why_not(SyntheticWorkload workload, const WorkloadShape& shape) {
  const Index loaded = loaded_experts(workload, shape.experts);
  if (shape.top_k <= loaded) return std::nullopt;
  return "workload " + std::string(name_of(workload)) + " loads " + std::to_string(loaded) + " of " +
         std::to_string(shape.experts) + " experts, fewer than top-k = " + std::to_string(shape.top_k) +
         "; choose top_k = " + std::to_string(loaded) + " or less, or leave the workload out";
}

TokenRange tokens_of_rank(SyntheticWorkload workload, Index tokens, Index ranks, Index rank) {
  const bool ragged = workload == SyntheticWorkload::kRaggedSources && ranks > 1;
  // Shares of r of 0 + 1 + ... + (ranks - 1), or one of `ranks` each.
  const auto before = [&](Index r) {
    return ragged ? tokens * (r * (r - 1) / 2) / (ranks * (ranks - 1) / 2) : tokens * r / ranks;
  };
  return {before(rank), before(rank + 1) - before(rank)};
}

std::vector<std::int32_t> choose_experts(SyntheticWorkload workload, const WorkloadShape& shape,
                                         std::uint64_t seed, Index step, TokenRange range) {
  if (row_of(workload).is_drawn) return draw(workload, shape, seed, step, range);
  if (workload == SyntheticWorkload::kHot) return deal_around_one(shape, seed, step, range);
  const Index loaded = is_burst(workload, step) ? shape.top_k : loaded_experts(workload, shape.experts);
  return deal(workload, shape, loaded, seed, step, range);
}

}  // namespace moeloom
