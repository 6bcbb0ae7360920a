#include "model/parts/node_weights.hpp"

namespace moeloom {

NodeWeights::NodeWeights(const Communicator& world, Index floats, Index pretended)
    : nodes_(find_nodes(world, pretended)),
      node_(world.split(static_cast<int>(nodes_.node_of[at(world.rank())]), world.rank())) {
  agree(world, [&] { memory_ = std::make_shared<NodeMemory>(node_, 0); });
  agree(world, [&] {
    if (node_.rank() == 0) block_ = NodeBlock(memory_, floats * Index{sizeof(float)});
  });
  const std::int64_t mine = block_.offset();
  const std::int64_t first = node_.all_gather(std::span(&mine, 1)).front();
  values_ = {reinterpret_cast<float*>(memory_->address(0, first)), at(floats)};
}

}  // namespace moeloom
