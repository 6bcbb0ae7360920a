// Who shares a parameter.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/parts/parameters.hpp"

namespace moeloom {

/// The ranks that hold the same values of it.
inline const Communicator& sharers(const Mesh& mesh, Placement placement) {
  return placement == Placement::kWorld ? mesh.world() : mesh.dp();
}

}  // namespace moeloom
