#include "moe/routing/router_statistics.hpp"

#include "kernels/elementwise/score_rows.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/exact_sums.hpp"
#include "tensor/eight.hpp"

#include <algorithm>
#include <cstring>

namespace moeloom {
namespace {

bool counts(std::span<const std::uint8_t> is_real, Index token) {
  return is_real.empty() || is_real[at(token)] != 0;
}

constexpr Index kTokensPerTask = 512;
constexpr Index kExpertsPerTask = 256;

/// [T]: what makes probabilities of a token's scores, one over their sum; 0 where the token does not count. A
/// softmax's sum is 1.
std::vector<double> probability_factors(const Routing& routing, std::span<const std::uint8_t> is_real) {
  std::vector<double> factors(at(routing.tokens()));
  const bool softmaxed = !routing.log_sum_exp.empty() || routing.balance_scores.rows() > 0;
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      if (!counts(is_real, t)) continue;
      const double sum = softmaxed ? 1 : sum_of_scores(routing.scores.row(t), routing.scores.cols());
      factors[at(t)] = sum == 0 ? 0 : 1 / sum;
    }
  });
  return factors;
}

using EightWide = double __attribute__((vector_size(64)));

/// sums [kSums * 8] += factor * scores of tokens [begin, end), from column `first` on. In lanes by name: the
/// compiler keeps an array of double sums in memory.
template <Index kSums>
void add_lanes(const Matrix& all, const std::vector<double>& factors, Index begin, Index end, Index first,
               double* sums) {
  EightWide mine[kSums];
  std::memcpy(mine, sums, sizeof mine);
  for (Index t = begin; t < end; ++t) {
    const double factor = factors[at(t)];
    if (factor == 0) continue;  // a row that does not count may hold NaN
    const float* const scores = all.row(t) + first;
    for (Index i = 0; i < kSums; ++i)
      mine[i] += factor * __builtin_convertvector(load8(scores + 8 * i), EightWide);
  }
  std::memcpy(sums, mine, sizeof mine);
}

/// sums [E] += the probabilities of tokens [begin, end), token by token: threads share the experts, so that
/// each sum keeps its order.
void add_probabilities(const Routing& routing, const std::vector<double>& factors, Index begin, Index end,
                       std::vector<double>& sums) {
  constexpr Index kAtOnce = 64, kTile = 32;  // experts and tokens: rows are read as they lie
  const Matrix& scores = routing.balanced_scores();
  parallel_blocks(std::ssize(sums), kExpertsPerTask, [&](Index first, Index last) {
    const Index whole = first + (last - first) / kAtOnce * kAtOnce;
    const Index eights = first + (last - first) / 8 * 8;
    for (Index t = begin; t < end; t += kTile) {
      const Index tile_end = std::min(end, t + kTile);
      for (Index e = first; e < whole; e += kAtOnce)
        add_lanes<kAtOnce / 8>(scores, factors, t, tile_end, e, sums.data() + e);
      for (Index e = whole; e < eights; e += 8)
        add_lanes<1>(scores, factors, t, tile_end, e, sums.data() + e);
      for (Index token = t; token < tile_end; ++token)
        for (Index e = eights; e < last && factors[at(token)] != 0; ++e)
          sums[at(e)] += factors[at(token)] * static_cast<double>(scores.row(token)[e]);
    }
  });
}

/// Of each task of tokens: its slots of each expert, and those that were dropped, at E. Integers, so that no
/// result depends on the threads.
std::vector<std::int64_t> count_slots(const Routing& routing, std::span<const std::uint8_t> is_real) {
  const Index stride = routing.scores.cols() + 1;
  std::vector<std::int64_t> sums(at(ceil_div(routing.tokens(), kTokensPerTask) * stride));
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    std::int64_t* const mine = sums.data() + begin / kTokensPerTask * stride;
    for (Index t = begin; t < end; ++t) {
      if (!counts(is_real, t)) continue;
      for (Index slot = t * routing.top_k; slot < (t + 1) * routing.top_k; ++slot) {
        const std::int32_t e = routing.topk_idx[at(slot)];
        if (e == kNoExpert) continue;
        ++mine[e];
        if (!routing.kept_idx.empty() && routing.kept_idx[at(slot)] == kNoExpert) ++mine[stride - 1];
      }
    }
  });
  return sums;
}

/// The experts of token t that the aux loss counts.
std::span<const std::int32_t> balanced_experts(const Routing& routing, Index t) {
  const Index k = routing.balance_k > 0 ? routing.balance_k : routing.top_k;
  const auto& all = routing.balance_k > 0 ? routing.balance_idx : routing.topk_idx;
  return std::span(all).subspan(at(t * k), at(k));
}

}  // namespace

void ChosenCounts::add(const ChosenCounts& other) {
  const auto add_up = [](std::vector<std::int64_t>& sums, const std::vector<std::int64_t>& more) {
    sums.resize(std::max(sums.size(), more.size()));
    for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
  };
  add_up(per_expert, other.per_expert);
  add_up(for_balance, other.for_balance);
  tokens += other.tokens;
  sequences += other.sequences;
}

void ChosenCounts::sum_over(const Communicator& world) {
  std::vector<std::int64_t> all = per_expert;
  all.insert(all.end(), for_balance.begin(), for_balance.end());
  all.insert(all.end(), {tokens, sequences});
  world.all_sum(all);
  sequences = all.back();
  tokens = all[all.size() - 2];
  std::copy_n(all.begin(), per_expert.size(), per_expert.begin());
  std::copy_n(all.begin() + std::ssize(per_expert), for_balance.size(), for_balance.begin());
}

RouterStatistics::RouterStatistics(Index layers, Index num_experts, Index tokens_per_leaf)
    : experts_(num_experts),
      tokens_per_leaf_(tokens_per_leaf),
      chosen_{.per_expert = std::vector<std::int64_t>(at(layers * num_experts))},
      sums_(at(layers), {.per_expert = std::vector<double>(at(num_experts))}),
      dropped_(at(layers)),
      is_sparse_(at(layers)),
      by_sequence_(at(layers)) {}

Index RouterStatistics::sparse_layers() const {
  return std::ranges::count(is_sparse_, 1);
}

std::span<const std::int64_t> RouterStatistics::chosen(Index layer) const {
  return std::span(chosen_.per_expert).subspan(at(layer * experts_), at(experts_));
}

void RouterStatistics::add(Index layer, const Routing& routing, std::span<const std::uint8_t> is_real,
                           Index tokens_per_sequence) {
  require(layer >= 0 && layer < layers() && routing.scores.cols() == experts_,
          "statistics are of these layers and experts");
  const bool is_first = sparse_layers() == 0;
  is_sparse_[at(layer)] = 1;
  tokens_per_sequence_ = tokens_per_sequence;
  const std::span<std::int64_t> chosen =
      std::span(chosen_.per_expert).subspan(at(layer * experts_), at(experts_));
  const std::vector<std::int64_t> slots = count_slots(routing, is_real);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::size_t e = i % (chosen.size() + 1);
    (e < chosen.size() ? chosen[e] : dropped_[at(layer)]) += slots[i];
  }
  if (routing.balance_k > 0) {  // on ranks without a token, too
    chosen_.for_balance.resize(chosen_.per_expert.size());
    for (Index t = 0; t < routing.tokens(); ++t)
      for (const std::int32_t e : balanced_experts(routing, t))
        chosen_.for_balance[at(layer * experts_ + e)] += counts(is_real, t) ? 1 : 0;
  }
  const std::vector<double> factors = probability_factors(routing, is_real);
  const Index leaf = tokens_per_leaf_ == 0 ? routing.tokens() : tokens_per_leaf_;
  for (Index begin = 0; begin < routing.tokens(); begin += leaf)
    add_reals(layer, routing, is_real, factors, begin, std::min(begin + leaf, routing.tokens()));
  if (is_first)  // the same of every layer
    for (Index t = 0; t < routing.tokens(); ++t) chosen_.tokens += counts(is_real, t) ? 1 : 0;
  if (tokens_per_sequence > 0) add_sequences(layer, routing, is_real, factors);
}

void RouterStatistics::add_reals(Index layer, const Routing& routing, std::span<const std::uint8_t> is_real,
                                 const std::vector<double>& factors, Index begin, Index end) {
  ProbabilitySums& sums = sums_[at(layer)];
  ProbabilitySums leaf{.per_expert = std::vector<double>(at(experts_))};
  ProbabilitySums& mine = tokens_per_leaf_ == 0 ? sums : leaf;
  add_probabilities(routing, factors, begin, end, mine.per_expert);
  for (Index t = begin; t < end; ++t) {
    if (!counts(is_real, t)) continue;
    mine.entropy += routing.entropy[at(t)];
    if (routing.log_sum_exp.empty()) continue;
    const double lse = routing.log_sum_exp[at(t)];
    mine.squared_log_sum_exp += lse * lse;
  }
  if (tokens_per_leaf_ == 0) return;
  for (std::size_t e = 0; e < leaf.per_expert.size(); ++e)
    sums.per_expert[e] += rounded_leaf(leaf.per_expert[e]);
  sums.entropy += rounded_leaf(leaf.entropy);
  sums.squared_log_sum_exp += rounded_leaf(leaf.squared_log_sum_exp);
}

void RouterStatistics::merge(const RouterStatistics& other) {
  chosen_.add(other.chosen_);
  for (std::size_t layer = 0; layer < sums_.size(); ++layer) {
    ProbabilitySums& sums = sums_[layer];
    const ProbabilitySums& more = other.sums_[layer];
    for (std::size_t e = 0; e < sums.per_expert.size(); ++e) sums.per_expert[e] += more.per_expert[e];
    sums.squared_log_sum_exp += more.squared_log_sum_exp;
    sums.entropy += more.entropy;
    sums.sequence_losses += more.sequence_losses;
    dropped_[layer] += other.dropped_[layer];
  }
}

void RouterStatistics::add_sequences(Index layer, const Routing& routing,
                                     std::span<const std::uint8_t> is_real,
                                     const std::vector<double>& factors) {
  const Index sequences = routing.tokens() / tokens_per_sequence_;
  std::vector<std::int64_t>& chosen = by_sequence_[at(layer)];
  chosen.assign(at(sequences * experts_), 0);
  const bool is_first = tokens_of_sequences_.empty();
  if (is_first) tokens_of_sequences_.assign(at(sequences), 0);
  std::vector<double> probabilities(at(experts_));
  for (Index s = 0; s < sequences; ++s) {
    std::ranges::fill(probabilities, 0.0);
    const std::span<std::int64_t> mine = std::span(chosen).subspan(at(s * experts_), at(experts_));
    std::int64_t tokens = 0;
    const Index begin = s * tokens_per_sequence_, end = begin + tokens_per_sequence_;
    add_probabilities(routing, factors, begin, end, probabilities);
    for (Index t = begin; t < end; ++t) {
      if (!counts(is_real, t)) continue;
      ++tokens;
      for (const std::int32_t e : balanced_experts(routing, t))
        if (e != kNoExpert) ++mine[at(e)];
    }
    if (is_first) {
      tokens_of_sequences_[at(s)] = tokens;
      chosen_.sequences += tokens > 0 ? 1 : 0;
    }
    if (tokens == 0) continue;
    const auto n = static_cast<double>(tokens);
    double loss = 0;
    for (std::size_t e = 0; e < probabilities.size(); ++e)
      loss += static_cast<double>(mine[e]) / n * (probabilities[e] / n);
    loss *= static_cast<double>(experts_);
    sums_[at(layer)].sequence_losses += tokens_per_leaf_ == 0 ? loss : rounded_leaf(loss);
  }
}

void RouterStatistics::sum_over(const Communicator& world) {
  chosen_.sum_over(world);
  world.all_sum(dropped_);
  std::vector<double> reals;
  append_reals(reals);
  world.all_sum(reals);
  std::span<const double> sums = reals;
  take_reals(sums);
}

void RouterStatistics::append_reals(std::vector<double>& reals) const {
  for (const ProbabilitySums& sums : sums_) {
    reals.insert(reals.end(), sums.per_expert.begin(), sums.per_expert.end());
    reals.insert(reals.end(), {sums.squared_log_sum_exp, sums.entropy, sums.sequence_losses});
  }
}

void RouterStatistics::take_reals(std::span<const double>& reals) {
  auto next = reals.begin();
  for (ProbabilitySums& sums : sums_) {
    for (double& sum : sums.per_expert) sum = *next++;
    sums.squared_log_sum_exp = *next++;
    sums.entropy = *next++;
    sums.sequence_losses = *next++;
  }
  reals = {next, reals.end()};
}

}  // namespace moeloom
