#include "moeloom/job/mesh_shape.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <sstream>

namespace moeloom {
namespace {

std::string divisors(Index n) {
  std::string small, large;
  for (Index d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small += (d > 1 ? ", " : "") + std::to_string(d);
    if (d * d != n) large = ", " + std::to_string(n / d) + large;
  }
  return small + large;
}

bool names_each_axis_once(std::vector<std::string> order) {
  std::sort(order.begin(), order.end());
  return order == std::vector<std::string>{"dp", "ep"};
}

std::string order_violation(const std::string& text) {
  return "mesh order \"" + text + "\" must name dp and ep once each, slowest first; choose dp,ep or ep,dp";
}

}  // namespace

Index MeshShape::dp_rank(Index world_rank) const {
  return ep_is_fastest() ? world_rank / ep : world_rank % dp;
}
Index MeshShape::ep_rank(Index world_rank) const {
  return ep_is_fastest() ? world_rank % ep : world_rank / dp;
}
Index MeshShape::world_rank(Index dp_rank, Index ep_rank) const {
  return ep_is_fastest() ? dp_rank * ep + ep_rank : ep_rank * dp + dp_rank;
}
MeshShape MeshShape::completed(Index world) const {
  MeshShape shape = *this;
  if (dp == 0 && ep > 0) shape.dp = world / ep;
  return shape;
}
std::string MeshShape::text() const {
  return "dp=" + std::to_string(dp) + " ep=" + std::to_string(ep);
}

std::vector<std::string> mesh_violations(const MeshShape& shape, Index world, Index num_experts) {
  std::vector<std::string> violations;
  const auto say = [&](auto... parts) {
    std::ostringstream text;
    (text << ... << parts);
    violations.push_back(text.str());
  };
  if (!names_each_axis_once(shape.order)) violations.push_back(order_violation(joined(shape.order)));
  if (shape.ep < 1) {
    say("ep = ", shape.ep, " must be at least 1");
    return violations;
  }
  if (shape.dp < 0) say("dp = ", shape.dp, " must be at least 1, or 0 for ranks / ep");
  if (world % shape.ep != 0)
    say("ep = ", shape.ep, " does not divide the ", world, " ranks; choose ep from ", divisors(world),
        ", or start a multiple of ", shape.ep, " ranks");
  else if (shape.dp > 0 && shape.dp * shape.ep != world)
    say("dp x ep = ", shape.dp, " x ", shape.ep, " = ", shape.dp * shape.ep, " but there are ", world,
        " ranks; leave dp out, or set it to ", world / shape.ep);
  if (num_experts > 0 && num_experts < shape.ep)
    say("ep = ", shape.ep, " is more than num_experts = ", num_experts, ", so that ", shape.ep - num_experts,
        " rank(s) of each ep row would hold no expert; choose ep of at most ", num_experts);
  return violations;
}

std::vector<std::string> parse_mesh_order(const std::string& text) {
  std::vector<std::string> order(1);
  for (const char c : text) {
    if (c == ',')
      order.emplace_back();
    else
      order.back() += c;
  }
  if (!names_each_axis_once(order)) throw ConfigError({order_violation(text)});
  return order;
}

ExpertRange experts_of(Index num_experts, Index ep, Index ep_rank) {
  const Index each = num_experts / ep;
  const Index larger = num_experts % ep;
  return {.begin = ep_rank * each + std::min(ep_rank, larger), .count = each + (ep_rank < larger ? 1 : 0)};
}

}  // namespace moeloom
