// What crosses between nodes: a token once to each node that holds some of its experts, wherever there.
//
// A rank sends what it has for a node to one member of it, which puts a copy of the row in place for each
// expert and later sends back what the experts made of it. In exact mode every copy comes back by itself,
// because a token's sum runs in slot order and slots of several nodes alternate; only the slots that open the
// sum, as long as they lie on one node, are a sum already. In fast mode a node returns one sum.
#pragma once

#include "comm/node_map.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/job/dispatcher_kind.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct DispatchPlan;
struct HierarchicalPlan;

/// One copy of a row that has crossed: where it lands there.
struct CrossingCopy {
  std::int32_t row;        // of the member
  std::int16_t member;     // of the node
  std::uint8_t new_token;  // 1: the first copy of its token
  std::uint8_t new_sum;    // 1: comes back as a row of its own; 0: is added to the copy before it
};

/// What travels between this rank and one other.
struct CrossingCounts {
  Index tokens = 0;  // rows out
  Index copies = 0;  // rows that land
  Index sums = 0;    // rows back
};

/// A summand of a token: a row of a member of this node, or (source - members) a sum that a route brings
/// back.
struct Summand {
  Index source = 0;
  Index row = 0;
};

/// Routes are the ranks that this one exchanges rows with, in the order of their nodes (out) or ranks (in).
struct CrossingRoutes {
  std::vector<Index> out;         // [nodes - 1] to whom what leaves for each other node is sent
  std::vector<Index> out_routes;  // [nodes] the place of a node in `out`; -1: this rank's own
  std::vector<Index> in;          // the ranks of other nodes whose tokens this one hands out
};
CrossingRoutes crossing_routes(const NodeMap& nodes, Index rank);

/// How the rows of a rank cross.
struct CrossingWay {
  const NodeMap& nodes;
  const CrossingRoutes& routes;
  Index rank = 0;
  CombineMode mode = CombineMode::kExact;
};

struct CrossingPlan {
  std::vector<CrossingCounts> leaving;       // [out routes]
  std::vector<Index> tokens;                 // that leave, route after route
  std::vector<Index> slots;                  // of their copies, in the same order
  std::vector<CrossingCopy> leaving_copies;  // likewise: what their receivers hear of them
  std::vector<Summand> summands;             // of this rank's tokens, token after token
  std::vector<Index> summand_offsets;        // [T + 1]

  std::vector<CrossingCounts> arriving;  // [in routes]
  std::vector<CrossingCopy> copies;      // of what arrives, route after route
};

/// The half of the tokens' owner: fills own.crossing but for what arrives, from own.landings.
void plan_leaving(const CrossingWay& way, const DispatchPlan& plan, HierarchicalPlan& own);
/// What a rank that sends sent_per_rank [ep] has for the experts of a node: its copies, if that is another.
Index rows_for_node(const NodeMap& nodes, Index node, std::span<const Index> sent_per_rank);
/// The other half, from the copies that arrive; copies_per_route [in routes].
void plan_arriving(std::vector<CrossingCopy> copies, std::span<const Index> copies_per_route,
                   CrossingPlan& plan);

}  // namespace moeloom
