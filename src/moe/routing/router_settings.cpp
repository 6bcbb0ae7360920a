#include "moeloom/moe/routing/router_settings.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

bool fits(std::span<const float> vector, Index num_experts) {
  return vector.empty() || std::ssize(vector) == num_experts;
}

}  // namespace

void check_router(const RouterSettings& s) {
  require(s.top_k >= 1 && s.top_k <= s.num_experts, "top_k must lie in [1, num_experts]");
  require(fits(s.correction_bias, s.num_experts), "correction_bias needs one number an expert, or none");
  require(fits(s.expert_scale, s.num_experts), "expert_scale needs one number an expert, or none");
  require(s.balance_by != BalanceBy::kWeights || s.weigh_by != WeighBy::kScore,
          "a router that is balanced by its weights needs weights that are no scores");
  require(s.balance_by != BalanceBy::kWeights || s.expert_scale.empty(),
          "a router that is balanced by its weights has no scale of experts to learn");
  require(s.nearness >= 0, "nearness must not be negative");
  require(s.num_groups >= 1 && s.num_experts % s.num_groups == 0, "num_groups must divide num_experts");
  require(s.topk_group >= 1 && s.topk_group <= s.num_groups, "topk_group must lie in [1, num_groups]");
  require(s.top_k <= s.topk_group * (s.num_experts / s.num_groups),
          "the kept groups have topk_group * num_experts / num_groups experts, fewer than top_k; raise "
          "topk_group or lower top_k");
}

}  // namespace moeloom
