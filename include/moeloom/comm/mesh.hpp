// The device mesh: world = dp x ep.
//
//   world = 8, dp = 2, ep = 4; rank = dp_rank * ep + ep_rank
//              ep_rank  0     1     2     3
//   dp_rank 0         [ 0 ] [ 1 ] [ 2 ] [ 3 ]    <- one ep communicator: tokens travel along a row
//   dp_rank 1         [ 4 ] [ 5 ] [ 6 ] [ 7 ]
//                       ^ one dp communicator: the same experts; their gradients are summed down a column
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/job/mesh_shape.hpp"

namespace moeloom {

/// The communicators of a shape. Moved, not copied; no function but the constructor is collective.
class Mesh {
 public:
  /// Takes over `world` and splits it. Collective over it. Throws ConfigError on every rank, with what
  /// mesh_violations() says, unless dp * ep is world.size() (shape.dp = 0: world.size() / ep); MpiError.
  Mesh(Communicator world, MeshShape shape);
  /// One process without MPI: dp = ep = 1.
  static Mesh single();

  /// With dp filled in.
  const MeshShape& shape() const { return shape_; }
  const Communicator& world() const { return world_; }
  /// The ranks that hold the same experts as this one, by dp_rank.
  const Communicator& dp() const { return dp_; }
  /// The ranks among which this rank's tokens travel, by ep_rank.
  const Communicator& ep() const { return ep_; }
  /// The ranks of the world that share this rank's memory.
  const Communicator& node() const { return node_; }
  /// Nodes of the world.
  Index nodes() const { return nodes_; }
  /// Those of num_experts that this rank holds.
  ExpertRange experts(Index num_experts) const { return experts_of(num_experts, shape_.ep, ep_.rank()); }

 private:
  MeshShape shape_;
  Communicator world_;
  Communicator dp_;
  Communicator ep_;
  Communicator node_;
  Index nodes_ = 1;
};

}  // namespace moeloom
