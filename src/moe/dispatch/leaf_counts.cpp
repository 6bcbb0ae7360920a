#include "dispatch/leaf_counts.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

namespace moeloom {

std::vector<Index> exchange_leaf_counts(const Communicator& ep, std::span<const std::int32_t> topk_idx,
                                        Index num_experts, const TokenLeaves& leaves) {
  require(leaves.count * leaves.slots == std::ssize(topk_idx), "a rank's tokens must be whole leaves");
  const Index ranks = ep.size(), most = experts_of(num_experts, ranks, 0).count;  // experts of a rank
  std::vector<Index> place(at(num_experts));  // of each expert's first leaf
  for (Index rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(num_experts, ranks, rank);
    for (Index i = 0; i < held.count; ++i) place[at(held.begin + i)] = (rank * most + i) * leaves.count;
  }
  std::vector<std::int64_t> sent(at(ranks * most * leaves.count)), arrived(sent.size());
  for (Index slot = 0; slot < std::ssize(topk_idx); ++slot)
    if (topk_idx[at(slot)] != kNoExpert) ++sent[at(place[at(topk_idx[at(slot)])] + slot / leaves.slots)];
  ep.all_to_all(sent, arrived);
  const Index mine = experts_of(num_experts, ranks, ep.rank()).count;
  std::vector<Index> rows;
  rows.reserve(at(mine * ranks * leaves.count));
  for (Index expert = 0; expert < mine; ++expert)
    for (Index rank = 0; rank < ranks; ++rank)
      for (Index leaf = 0; leaf < leaves.count; ++leaf)
        rows.push_back(arrived[at((rank * most + expert) * leaves.count + leaf)]);
  return rows;
}

}  // namespace moeloom
