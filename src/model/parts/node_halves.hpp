// Frozen weights in bf16 or F16 that all ranks have, once for the ranks of a node: each of these keeps, and
// reads from the files, about as many of them as every other.
#pragma once

#include "comm/node_memory.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/comm/communicator.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace moeloom {

/// Whether the ranks of a node keep a parameter once.
inline bool is_kept_once(const ParameterSpec& spec) {
  return spec.frozen && is_half(spec.stored) && spec.placement == Placement::kWorld;
}

class NodeHalves {
 public:
  /// Collective over `node`; specs: the same on all its ranks. Throws AgreedError as NodeMemory does.
  NodeHalves(const Communicator& node, const std::vector<ParameterSpec>& specs);

  struct Place {
    std::uint16_t* data = nullptr;  // null: not kept here
    bool is_mine = true;            // to be filled by this rank, and read by others after they have met
  };
  /// Of the parameter with that index in the list.
  Place place(std::size_t parameter) const { return places_[parameter]; }
  /// That this rank holds.
  Index bytes() const { return memory_->bytes(); }

 private:
  std::shared_ptr<NodeMemory> memory_;
  NodeBlock block_;
  std::vector<Place> places_;
};

/// Null where there is nothing to share, no one to share it with, or no memory that ranks can share.
/// Collective over `node`.
std::shared_ptr<const NodeHalves> shared_halves(const Communicator& node,
                                                const std::vector<ParameterSpec>& specs);

}  // namespace moeloom
