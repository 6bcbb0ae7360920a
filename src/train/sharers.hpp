// Who shares a parameter.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/comm/mesh.hpp"

namespace moeloom {

/// The ranks that hold the same values of it.
inline const Communicator& sharers(const Mesh& mesh, Placement placement) {
  return placement == Placement::kWorld ? mesh.world() : mesh.dp();
}

}  // namespace moeloom
