// The experts that a token chooses: the k largest values, of the groups that are kept.
#pragma once

#include "kernels/top_k.hpp"
#include "moeloom/moe/routing/router_settings.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace moeloom {

/// The k largest by falling value, the lower index on a tie.
inline void choose_largest(const float* values, Index n, Index k, std::int32_t* chosen) {
  largest_of(values, n, k, chosen);
}
/// K is small, so one insertion pass over the experts beats a sort.
inline void choose_largest(const double* values, Index n, Index k, std::int32_t* chosen) {
  Index held = 0;
  for (Index e = 0; e < n; ++e) {
    if (held == k && values[e] <= values[chosen[k - 1]]) continue;
    Index place = held < k ? held++ : k - 1;
    for (; place > 0 && values[chosen[place - 1]] < values[e]; --place) chosen[place] = chosen[place - 1];
    chosen[place] = static_cast<std::int32_t>(e);
  }
}

/// The choice, with its memory for one token.
template <typename Real>
class TokenChoice {
 public:
  explicit TokenChoice(const RouterSettings& settings)
      : settings_(settings),
        values_(at(settings.num_experts)),
        worth_(at(settings.num_groups)),
        kept_(at(settings.topk_group)) {}

  /// compared [E], before the bias -> chosen [K].
  void choose(const Real* compared, std::int32_t* chosen) {
    const Index experts = settings_.num_experts;
    const bool with_groups = settings_.topk_group < settings_.num_groups;
    if (settings_.correction_bias.empty() && !with_groups)
      return choose_largest(compared, experts, settings_.top_k, chosen);
    std::copy_n(compared, experts, values_.begin());
    for (std::size_t e = 0; e < settings_.correction_bias.size(); ++e)
      values_[e] += static_cast<Real>(settings_.correction_bias[e]);
    if (with_groups) leave_groups_out();
    choose_largest(values_.data(), experts, settings_.top_k, chosen);
  }

 private:
  void leave_groups_out() {
    const Index size = settings_.num_experts / settings_.num_groups;
    for (Index g = 0; g < settings_.num_groups; ++g) worth_[at(g)] = worth(values_.data() + g * size, size);
    choose_largest(worth_.data(), settings_.num_groups, settings_.topk_group, kept_.data());
    // -inf, as DeepSeek's own code has it: 0 would win against a kept expert whose bias is below -score.
    for (Index g = 0; g < settings_.num_groups; ++g)
      if (std::ranges::find(kept_, g) == kept_.end())
        std::fill_n(values_.data() + g * size, size, -std::numeric_limits<Real>::infinity());
  }

  /// A group of one expert is worth what that one is.
  Real worth(const Real* values, Index n) const {
    if (n == 1 || settings_.group_worth == GroupWorth::kBest) return *std::max_element(values, values + n);
    std::int32_t best[2];
    choose_largest(values, n, 2, best);
    return values[best[0]] + values[best[1]];
  }

  const RouterSettings& settings_;
  std::vector<Real> values_;        // [E], compared
  std::vector<Real> worth_;         // [groups]
  std::vector<std::int32_t> kept_;  // [kept groups]
};

}  // namespace moeloom
