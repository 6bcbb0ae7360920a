#include "train/router_bias.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

bool is_router_bias(const Parameter& parameter) {
  return parameter.spec.name.ends_with("gate.e_score_correction_bias");
}

}  // namespace

void move_router_bias(std::span<const std::int64_t> chosen, double rate, std::span<float> bias) {
  const std::int64_t all = std::reduce(chosen.begin(), chosen.end(), std::int64_t{0});
  if (all == 0) return;
  for (std::size_t e = 0; e < chosen.size(); ++e) {
    const std::int64_t missing = all - chosen[e] * std::ssize(chosen);  // E times (mean - count)
    const int sign = (missing > 0) - (missing < 0);
    bias[e] += static_cast<float>(rate * sign);
  }
}

void move_router_biases(std::span<const std::int64_t> chosen, Index num_experts, double rate,
                        ParameterStore& store) {
  if (rate == 0) return;
  for (const Parameter& parameter : store.parameters())
    if (is_router_bias(parameter) && parameter.is_filled_here)
      move_router_bias(chosen.subspan(at(parameter.spec.layer * num_experts), at(num_experts)), rate,
                       parameter.value.flat());
  store.settle();
  store.mark_changed();
}

}  // namespace moeloom
