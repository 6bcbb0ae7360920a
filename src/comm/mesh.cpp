#include "moeloom/comm/mesh.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace moeloom {
namespace {

/// Throws before the first collective.
MeshShape checked(const MeshShape& shape, Index world) {
  const std::vector<std::string> violations = mesh_violations(shape, world, 0);
  if (!violations.empty()) throw ConfigError(violations);
  return shape.completed(world);
}

}  // namespace

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
  world_.learn_nodes();                // later one rank may ask alone
  nodes_ = node_.rank() == 0 ? 1 : 0;  // one rank a node counts it
  world_.all_sum(std::span(&nodes_, 1));
}

Mesh Mesh::single() {
  return Mesh(Communicator::self(), {});
}

}  // namespace moeloom
