#include "moe/routing/router_losses.hpp"

namespace moeloom {
namespace {

double real(std::int64_t n) {
  return static_cast<double>(n);
}

/// Times that each expert counts as chosen in a layer, or in all of them.
std::vector<std::int64_t> chosen_in(const ChosenCounts& counts, Index experts, Index layer, bool pooled) {
  std::vector<std::int64_t> chosen(at(experts));
  const Index layers = std::ssize(counts.balanced()) / experts;
  for (Index l = pooled ? 0 : layer; l < (pooled ? layers : layer + 1); ++l)
    for (Index e = 0; e < experts; ++e) chosen[at(e)] += counts.balanced()[at(l * experts + e)];
  return chosen;
}

/// E * sum_e f_e P_e, from f_e N' and P_e N.
double balance_of(std::span<const std::int64_t> chosen, double f_tokens,
                  std::span<const double> probability_sums, double tokens) {
  double sum = 0;
  for (std::size_t e = 0; e < chosen.size(); ++e)
    sum += real(chosen[e]) / f_tokens * (probability_sums[e] / tokens);
  return real(std::ssize(chosen)) * sum;
}

double pooled_loss(const RouterStatistics& s, const ChosenCounts& f_counts) {
  const double layers = real(s.sparse_layers());
  std::vector<double> probabilities(at(s.experts()));
  for (Index l = 0; l < s.layers(); ++l)
    for (std::size_t e = 0; e < probabilities.size(); ++e) probabilities[e] += s.sums(l).per_expert[e];
  return balance_of(chosen_in(f_counts, s.experts(), 0, true), layers * real(f_counts.tokens), probabilities,
                    layers * real(s.chosen().tokens));
}

double loss_of_layer(const RouterStatistics& s, const ChosenCounts& f_counts, Index layer,
                     const BalanceSettings& balance) {
  const ProbabilitySums& sums = s.sums(layer);
  if (balance.over == BalanceOver::kSequence)
    return s.chosen().sequences == 0 ? 0 : sums.sequence_losses / real(s.chosen().sequences);
  return balance_of(chosen_in(f_counts, s.experts(), layer, false), real(f_counts.tokens), sums.per_expert,
                    real(s.chosen().tokens));
}

/// d aux / d p_te of each sequence: E f_se / (tokens of s * sequences * layers). Integers are multiplied
/// first: their product is the same however a step is cut into micro-batches.
std::vector<float> gradient_by_sequence(Index layer, const RouterStatistics& s, const ChosenCounts& global,
                                        double aux_scale, Index micro_batches) {
  const double sequences = real(global.sequences) * real(micro_batches);
  std::vector<float> gradient;
  const auto tokens = s.tokens_of_sequences();
  const auto chosen = s.chosen_by_sequence(layer);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const double n = real(tokens[i / at(s.experts())]);
    const double share = n == 0 ? 0 : real(chosen[i]) / (n * n);
    gradient.push_back(
        static_cast<float>(aux_scale * real(s.experts()) * share / (sequences * real(s.sparse_layers()))));
  }
  return gradient;
}

}  // namespace

void check_balance(const BalanceSettings& balance, Violations& violations) {
  violations.unless(!balance.pooled || balance.over != BalanceOver::kSequence,
                    "the aux loss of joined layers has no sequences; balance each layer by itself, or over "
                    "another range than the sequence");
}

double aux_loss(const RouterStatistics& micro_batch, const ChosenCounts& f_counts,
                const BalanceSettings& balance) {
  if (micro_batch.chosen().tokens == 0 || micro_batch.sparse_layers() == 0) return 0;
  if (balance.pooled) return pooled_loss(micro_batch, f_counts);
  double sum = 0;
  for (Index l = 0; l < micro_batch.layers(); ++l) sum += loss_of_layer(micro_batch, f_counts, l, balance);
  return sum / real(micro_batch.sparse_layers());
}

double aux_loss(const RouterStatistics& micro_batch, const BalanceSettings& balance) {
  return aux_loss(micro_batch, micro_batch.chosen(), balance);
}

double z_loss(const RouterStatistics& micro_batch) {
  if (micro_batch.chosen().tokens == 0 || micro_batch.sparse_layers() == 0) return 0;
  double sum = 0;
  for (Index l = 0; l < micro_batch.layers(); ++l) sum += micro_batch.sums(l).squared_log_sum_exp;
  return sum / (real(micro_batch.chosen().tokens) * real(micro_batch.sparse_layers()));
}

RouterLossGradient router_loss_gradient(Index layer, const RouterStatistics& micro_batch,
                                        const ChosenCounts& global, const ChosenCounts& f_counts,
                                        const BalanceSettings& balance, double aux_scale, double z_scale,
                                        const WholeStep& step) {
  RouterLossGradient gradient;
  if (global.tokens == 0 || (aux_scale == 0 && z_scale == 0)) return gradient;
  const double layers = real(micro_batch.sparse_layers());
  // Of equal micro-batches, and of those whose aux losses count alike whatever their tokens.
  const double as_many = layers * real(global.tokens) * real(step.micro_batches);
  const double all = step.tokens > 0 ? layers * real(step.tokens) : as_many;
  gradient.d_log_sum_exp = static_cast<float>(2 * z_scale / all);
  if (aux_scale == 0) return gradient;
  if (balance.over == BalanceOver::kSequence) {
    gradient.d_probability = gradient_by_sequence(layer, micro_batch, global, aux_scale, step.micro_batches);
    gradient.tokens_per_row = micro_batch.tokens_per_sequence();
    return gradient;
  }
  const double f_tokens = real(f_counts.tokens) * (balance.pooled ? layers : 1);
  const double experts = real(micro_batch.experts());
  const double p_tokens = balance.over == BalanceOver::kGlobalBatch ? all : as_many;
  for (const std::int64_t count : chosen_in(f_counts, micro_batch.experts(), layer, balance.pooled))
    gradient.d_probability.push_back(
        static_cast<float>(aux_scale * experts * real(count) / (f_tokens * p_tokens)));
  return gradient;
}

}  // namespace moeloom
