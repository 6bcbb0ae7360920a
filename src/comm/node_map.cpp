#include "comm/node_map.hpp"

#include <algorithm>
#include <bit>

namespace moeloom {
namespace {

/// The lowest rank on this rank's node, which keeps their order.
std::int64_t first_rank_of_node(const Communicator& ranks) {
  const std::int64_t mine = ranks.rank();
  return ranks.split_by_node().all_gather(std::span(&mine, 1)).front();
}

}  // namespace

Index NodeMap::subtree_ranks() const {
  const Index ranks = std::ssize(node_of), each = ranks / nodes();
  if (each * nodes() != ranks || !std::has_single_bit(static_cast<std::size_t>(each))) return 0;
  for (Index rank = 0; rank < ranks; ++rank)
    if (node_of[at(rank)] != rank / each) return 0;
  return each;
}

Index NodeMap::taker_on(Index node, Index rank) const {
  if (node_of[at(rank)] == node) return rank;
  const std::vector<Index>& there = members[at(node)];
  return there[at(member_of[at(rank)] % std::ssize(there))];
}

NodeMap node_map_of(std::span<const std::int64_t> node_names) {
  NodeMap map;
  std::vector<std::int64_t> names;
  for (std::size_t rank = 0; rank < node_names.size(); ++rank) {
    const auto found = std::ranges::find(names, node_names[rank]);
    const auto node = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(node_names[rank]);
      map.members.emplace_back();
    }
    map.node_of.push_back(static_cast<Index>(node));
    map.member_of.push_back(std::ssize(map.members[node]));
    map.members[node].push_back(static_cast<Index>(rank));
  }
  return map;
}

NodeMap find_nodes(const Communicator& ranks, Index pretended) {
  const Index nodes = std::min<Index>(pretended, ranks.size());
  const std::int64_t name = pretended > 0 ? ranks.rank() * nodes / ranks.size() : first_rank_of_node(ranks);
  return node_map_of(ranks.all_gather(std::span(&name, 1)));
}

}  // namespace moeloom
