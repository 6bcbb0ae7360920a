#include "moeloom/moe/routing/router_statistics.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

bool counts(std::span<const std::uint8_t> is_real, Index token) {
  return is_real.empty() || is_real[at(token)] != 0;
}

/// Adds the probabilities of a token, its scores divided by their sum. A softmax's sum is 1.
void add_probabilities(const Routing& routing, Index token, std::vector<double>& sums) {
  const float* scores = routing.scores.row(token);
  double sum = 1;
  if (routing.log_sum_exp.empty()) sum = std::accumulate(scores, scores + sums.size(), 0.0);
  if (sum == 0) return;
  if (sum == 1) {
    for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += scores[e];
  } else {
    for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += scores[e] / sum;
  }
}

}  // namespace

void ChosenCounts::add(const ChosenCounts& other) {
  per_expert.resize(other.per_expert.size());
  for (std::size_t i = 0; i < per_expert.size(); ++i) per_expert[i] += other.per_expert[i];
  tokens += other.tokens;
  sequences += other.sequences;
}

void ChosenCounts::sum_over(const Communicator& world) {
  std::vector<std::int64_t> all = per_expert;
  all.insert(all.end(), {tokens, sequences});
  world.all_sum(all);
  sequences = all.back();
  tokens = all[all.size() - 2];
  std::copy_n(all.begin(), per_expert.size(), per_expert.begin());
}

RouterStatistics::RouterStatistics(Index layers, Index num_experts)
    : experts_(num_experts),
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
  ProbabilitySums& sums = sums_[at(layer)];
  const std::span<std::int64_t> chosen =
      std::span(chosen_.per_expert).subspan(at(layer * experts_), at(experts_));
  std::int64_t tokens = 0;
  for (Index t = 0; t < routing.tokens(); ++t) {
    if (!counts(is_real, t)) continue;
    ++tokens;
    for (Index slot = t * routing.top_k; slot < (t + 1) * routing.top_k; ++slot) {
      const std::int32_t e = routing.topk_idx[at(slot)];
      if (e == kNoExpert) continue;
      ++chosen[at(e)];
      if (!routing.kept_idx.empty() && routing.kept_idx[at(slot)] == kNoExpert) ++dropped_[at(layer)];
    }
    add_probabilities(routing, t, sums.per_expert);
    sums.entropy += routing.entropy[at(t)];
    if (routing.log_sum_exp.empty()) continue;
    const double lse = routing.log_sum_exp[at(t)];
    sums.squared_log_sum_exp += lse * lse;
  }
  if (is_first) chosen_.tokens += tokens;  // the same of every layer
  if (tokens_per_sequence > 0) add_sequences(layer, routing, is_real);
}

void RouterStatistics::add_sequences(Index layer, const Routing& routing,
                                     std::span<const std::uint8_t> is_real) {
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
    for (Index t = s * tokens_per_sequence_; t < (s + 1) * tokens_per_sequence_; ++t) {
      if (!counts(is_real, t)) continue;
      ++tokens;
      add_probabilities(routing, t, probabilities);
      for (Index j = 0; j < routing.top_k; ++j)
        if (const std::int32_t e = routing.topk_idx[at(t * routing.top_k + j)]; e != kNoExpert) ++mine[at(e)];
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
    sums_[at(layer)].sequence_losses += static_cast<double>(experts_) * loss;
  }
}

void RouterStatistics::sum_over(const Communicator& world) {
  chosen_.sum_over(world);
  world.all_sum(dropped_);
  sum_reals_over(world);
}

void RouterStatistics::sum_reals_over(const Communicator& world) {
  std::vector<double> reals;
  for (const ProbabilitySums& sums : sums_) {
    reals.insert(reals.end(), sums.per_expert.begin(), sums.per_expert.end());
    reals.insert(reals.end(), {sums.squared_log_sum_exp, sums.entropy, sums.sequence_losses});
  }
  world.all_sum(reals);
  auto next = reals.begin();
  for (ProbabilitySums& sums : sums_) {
    for (double& sum : sums.per_expert) sum = *next++;
    sums.squared_log_sum_exp = *next++;
    sums.entropy = *next++;
    sums.sequence_losses = *next++;
  }
}

}  // namespace moeloom
