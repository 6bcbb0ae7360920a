#include "model/parts/node_halves.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kLineHalves = 32;

/// Which rank keeps a parameter, and where in its block.
struct Kept {
  Index rank = -1, begin = 0;
};

/// Each goes to the rank that has least so far.
std::vector<Kept> deal(const std::vector<ParameterSpec>& specs, std::vector<Index>& halves_of_rank) {
  std::vector<Kept> kept(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!is_kept_once(specs[i])) continue;
    const auto least = std::ranges::min_element(halves_of_rank);
    kept[i] = {least - halves_of_rank.begin(), *least};
    *least += ceil_div(specs[i].rows * specs[i].cols, kLineHalves) * kLineHalves;
  }
  return kept;
}

}  // namespace

NodeHalves::NodeHalves(const Communicator& node, const std::vector<ParameterSpec>& specs)
    : memory_(std::make_shared<NodeMemory>(node, 0)), places_(specs.size()) {
  std::vector<Index> halves_of_rank(at(node.size()), 0);
  const std::vector<Kept> kept = deal(specs, halves_of_rank);
  agree(node,
        [&] { block_ = NodeBlock(memory_, halves_of_rank[at(node.rank())] * Index{sizeof(std::uint16_t)}); });
  const std::int64_t mine = block_.offset();
  const std::vector<std::int64_t> offsets = node.all_gather(std::span(&mine, 1));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (kept[i].rank < 0) continue;
    std::byte* const block = memory_->address(static_cast<int>(kept[i].rank), offsets[at(kept[i].rank)]);
    places_[i] = {reinterpret_cast<std::uint16_t*>(block) + kept[i].begin, kept[i].rank == node.rank()};
  }
}

std::shared_ptr<const NodeHalves> shared_halves(const Communicator& node,
                                                const std::vector<ParameterSpec>& specs) {
  if (node.size() == 1 || std::ranges::none_of(specs, is_kept_once)) return nullptr;
  try {
    return std::make_shared<const NodeHalves>(node, specs);
  } catch (const AgreedError&) {
    return nullptr;  // on every rank of the node: each keeps its own
  }
}

}  // namespace moeloom
