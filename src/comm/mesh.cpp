#include "moeloom/comm/mesh.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace moeloom {
namespace {

bool ep_is_fastest(const MeshShape& shape) {
  return shape.order.back() == "ep";
}

std::string divisors(Index n) {
  std::string text;
  for (Index d = 1; d <= n; ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return text;
}

bool names_each_axis_once(std::vector<std::string> order) {
  std::sort(order.begin(), order.end());
  return order == std::vector<std::string>{"dp", "ep"};
}

std::string order_violation(const std::string& text) {
  return "mesh order \"" + text + "\" must name dp and ep once each, slowest first; choose dp,ep or ep,dp";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

/// Throws before the first collective.
MeshShape checked(const MeshShape& shape, Index world) {
  const std::vector<std::string> violations = mesh_violations(shape, world, 0);
  if (!violations.empty()) throw ConfigError(violations);
  return shape.completed(world);
}

}  // namespace

Index MeshShape::dp_rank(Index world_rank) const {
  return ep_is_fastest(*this) ? world_rank / ep : world_rank % dp;
}
Index MeshShape::ep_rank(Index world_rank) const {
  return ep_is_fastest(*this) ? world_rank % ep : world_rank / dp;
}
Index MeshShape::world_rank(Index dp_rank, Index ep_rank) const {
  return ep_is_fastest(*this) ? dp_rank * ep + ep_rank : ep_rank * dp + dp_rank;
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

Mesh::Mesh(Communicator world, MeshShape shape)
    : shape_(checked(shape, world.size())),
      world_(std::move(world)),
      dp_(Communicator::self()),
      ep_(Communicator::self()),
      node_(world_.split_by_node()) {
  const auto dp_rank = static_cast<int>(shape_.dp_rank(world_.rank()));
  const auto ep_rank = static_cast<int>(shape_.ep_rank(world_.rank()));
  ep_ = world_.split(dp_rank, ep_rank);
  dp_ = world_.split(ep_rank, dp_rank);
  world_.exchange_way();               // later one rank may ask alone
  nodes_ = node_.rank() == 0 ? 1 : 0;  // one rank a node counts it
  world_.all_sum(std::span(&nodes_, 1));
}

Mesh Mesh::single() {
  return Mesh(Communicator::self(), {});
}

}  // namespace moeloom
