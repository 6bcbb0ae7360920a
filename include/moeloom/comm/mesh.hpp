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

/// The communicators of a shape. Collective over the world to make.
class Mesh {
 public:
  /// Throws ConfigError on every rank unless shape.world() (dp = 0: world / ep) equals world.size().
  Mesh(Communicator world, MeshShape shape);
  /// One process without MPI.
  static Mesh single();

  const MeshShape& shape() const { return shape_; }
  const Communicator& world() const { return world_; }
  const Communicator& dp() const { return dp_; }
  const Communicator& ep() const { return ep_; }
  const Communicator& node() const { return node_; }
  Index nodes() const { return nodes_; }
  /// Those that this rank holds.
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
