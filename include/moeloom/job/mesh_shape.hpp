// How ranks form a device mesh: world = dp x ep. Arithmetic only, no collective; Mesh has the communicators.
#pragma once

#include "moeloom/base/index.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// Sizes of the axes and which one varies fastest over ranks.
struct MeshShape {
  Index dp = 1;  // groups that hold all experts once each; 0: ranks / ep, in completed() and Mesh alone
  Index ep = 1;  // ranks that share the experts of a layer
  /// Axes from slowest to fastest: "dp,ep" (default: ep ranks are neighbours) or "ep,dp".
  std::vector<std::string> order = {"dp", "ep"};

  Index world() const { return dp * ep; }
  bool ep_is_fastest() const { return order.back() == "ep"; }
  /// Places of a rank on the axes, and back. dp is not 0 here.
  Index dp_rank(Index world_rank) const;
  Index ep_rank(Index world_rank) const;
  Index world_rank(Index dp_rank, Index ep_rank) const;
  /// This shape with dp = 0 replaced by world / ep.
  MeshShape completed(Index world) const;
  /// "dp=2 ep=4"
  std::string text() const;
};

/// What is wrong with a mesh for `world` ranks and `num_experts` (0: no experts to place), each with its
/// arithmetic and the way out; empty when it fits. dp = 0 means: world / ep.
/// `ep = 3 does not divide the 4 ranks; choose ep from 1, 2, 4, or start a multiple of 3 ranks`
std::vector<std::string> mesh_violations(const MeshShape& shape, Index world, Index num_experts);

/// Parses "dp,ep" / "ep,dp"; throws ConfigError naming what is unknown or missing.
std::vector<std::string> parse_mesh_order(const std::string& text);

/// The contiguous block of experts that `ep_rank`, in [0, ep), holds. The first num_experts mod ep ranks hold
/// one more.
struct ExpertRange {
  Index begin = 0;
  Index count = 0;
};
ExpertRange experts_of(Index num_experts, Index ep, Index ep_rank);

}  // namespace moeloom
