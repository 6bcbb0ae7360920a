#include "moe/dispatch/crossing_plan.hpp"

#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <limits>
#include <numeric>

namespace moeloom {
namespace {

/// Spreads the ranks of a node over those of another, one each where both have as many.
Index counterpart(const NodeMap& nodes, Index rank, Index node) {
  const std::vector<Index>& members = nodes.members[at(node)];
  return members[at(nodes.member_of[at(rank)] % std::ssize(members))];
}

std::int32_t row_number(Index row) {
  require(row <= std::numeric_limits<std::int32_t>::max(), "a rank's rows must be fewer than 2^31");
  return static_cast<std::int32_t>(row);
}

/// visit(token, slot, route, new_token, new_sum) for every slot with an expert in order; route -1: it is on
/// this node. end_token() after each token's.
template <typename Visit, typename EndToken>
void walk_slots(const CrossingWay& way, const DispatchPlan& plan, const std::vector<Landing>& landings,
                Visit visit, EndToken end_token) {
  const auto& [nodes, routes, rank, mode] = way;
  std::vector<Index> last_token(routes.out.size(), -1);
  for (Index token = 0; token < plan.tokens; ++token) {
    Index opening = -1;  // the route that all slots so far take, if there is one
    bool first = true;
    for (Index slot = token * plan.top_k; slot < (token + 1) * plan.top_k; ++slot) {
      if (!landings[at(slot)].exists()) continue;
      const Index node = nodes.node_of[at(landings[at(slot)].rank)];
      const Index route = routes.out_routes[at(node)];
      opening = first || route == opening ? route : -1;
      first = false;
      if (route < 0) {
        visit(token, slot, route, false, true);
        continue;
      }
      const bool new_token = last_token[at(route)] != token;
      last_token[at(route)] = token;
      visit(token, slot, route, new_token, new_token || (mode == CombineMode::kExact && opening < 0));
    }
    end_token();
  }
}

/// Where each route's part begins among all of them.
std::vector<CrossingCounts> begins_of(const std::vector<CrossingCounts>& counts) {
  std::vector<CrossingCounts> begins(counts.size() + 1);
  for (std::size_t i = 0; i < counts.size(); ++i)
    begins[i + 1] = {begins[i].tokens + counts[i].tokens, begins[i].copies + counts[i].copies,
                     begins[i].sums + counts[i].sums};
  return begins;
}

void count_leaving(const CrossingWay& way, const DispatchPlan& plan, HierarchicalPlan& own) {
  own.crossing.leaving.assign(way.routes.out.size(), {});
  const auto count = [&](Index, Index, Index route, bool new_token, bool new_sum) {
    if (route < 0) return;
    CrossingCounts& counts = own.crossing.leaving[at(route)];
    counts.tokens += new_token;
    counts.sums += new_sum;
    ++counts.copies;
  };
  walk_slots(way, plan, own.landings, count, [] {});
}

}  // namespace

CrossingRoutes crossing_routes(const NodeMap& nodes, Index rank) {
  CrossingRoutes routes;
  const Index here = nodes.node_of[at(rank)];
  routes.out_routes.assign(at(nodes.nodes()), -1);
  for (Index node = 0; node < nodes.nodes(); ++node) {
    if (node == here) continue;
    routes.out_routes[at(node)] = std::ssize(routes.out);
    routes.out.push_back(counterpart(nodes, rank, node));
  }
  for (Index source = 0; source < std::ssize(nodes.node_of); ++source)
    if (!nodes.same_node(source, rank) && counterpart(nodes, source, here) == rank)
      routes.in.push_back(source);
  return routes;
}

void plan_leaving(const CrossingWay& way, const DispatchPlan& plan, HierarchicalPlan& own) {
  require(std::ssize(own.landings) == plan.slots(), "what crosses is planned from where rows land");
  const NodeMap& nodes = way.nodes;
  CrossingPlan& crossing = own.crossing;
  count_leaving(way, plan, own);
  const std::vector<CrossingCounts> begins = begins_of(crossing.leaving);
  std::vector<CrossingCounts> next(way.routes.out.size());
  std::vector<CrossingCopy>& copies = crossing.leaving_copies;
  copies.resize(at(begins.back().copies));
  crossing.tokens.resize(at(begins.back().tokens));
  crossing.slots.resize(copies.size());
  crossing.summands.clear();
  crossing.summand_offsets.assign(1, 0);
  const Index members = std::ssize(nodes.members[at(nodes.node_of[at(way.rank)])]);
  const auto place = [&](Index token, Index slot, Index route, bool new_token, bool new_sum) {
    const Landing& to = own.landings[at(slot)];
    const Index member = nodes.member_of[at(to.rank)];
    if (route < 0) {
      crossing.summands.push_back({member, to.row});
    } else {
      const CrossingCounts& begin = begins[at(route)];
      CrossingCounts& done = next[at(route)];
      if (new_token) crossing.tokens[at(begin.tokens + done.tokens++)] = token;
      if (new_sum) crossing.summands.push_back({members + route, done.sums++});
      crossing.slots[at(begin.copies + done.copies)] = slot;
      copies[at(begin.copies + done.copies++)] = {row_number(to.row), static_cast<std::int16_t>(member),
                                                  new_token, new_sum};
    }
  };
  walk_slots(way, plan, own.landings, place,
             [&] { crossing.summand_offsets.push_back(std::ssize(crossing.summands)); });
}

Index rows_for_node(const NodeMap& nodes, Index node, std::span<const Index> sent_per_rank) {
  Index rows = 0;
  for (const Index holder : nodes.members[at(node)]) rows += sent_per_rank[at(holder)];
  return rows;
}

void plan_arriving(std::vector<CrossingCopy> copies, std::span<const Index> copies_per_route,
                   CrossingPlan& plan) {
  plan.copies = std::move(copies);
  plan.arriving.assign(copies_per_route.size(), {});
  Index copy = 0;
  for (std::size_t route = 0; route < copies_per_route.size(); ++route) {
    CrossingCounts& counts = plan.arriving[route];
    counts.copies = copies_per_route[route];
    for (const Index end = copy + counts.copies; copy < end; ++copy) {
      const CrossingCopy& each = plan.copies[at(copy)];
      if (each.new_token != 0) ++counts.tokens;
      if (each.new_sum != 0) ++counts.sums;
    }
  }
}

}  // namespace moeloom
