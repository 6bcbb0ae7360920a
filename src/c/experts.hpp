// Handles of a layer's experts, and of what a pass through them leaves.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "group.hpp"

namespace moeloom::c {

/// Of one layer, or of all with its settings.
struct Experts {
  std::shared_ptr<Group> group;
  Index num_experts = 0, layer = 0;
  Call forward = {}, backward = {}, dispatch = {}, combine = {};  // as the door has them
  GatedActivation activation = {};
  WayRequest request = {};
  ExpertRange held = {};
  struct Chosen {
    Way* way = nullptr;
    std::string reason = {};
  };
  std::map<int, Chosen> ways = {};  // by the power of two that tokens are below
  std::string reason = "nothing is decided before the first forward";
};

/// Where rows go, for who multiplies them himself. It outlives every trip by it.
struct RowPlan {
  Way* way = nullptr;
  Index num_experts = 0;
  Index number = 0;  // of forwards on the group
  DispatchPlan plan = {};
};

/// [T, D], of the width that rows of other ranks have, also without a token.
template <typename View>
View of_width(View rows, Index width) {
  return rows.rows > 0 ? rows : View(nullptr, 0, width);
}

}  // namespace moeloom::c

struct ml_experts {
  moeloom::c::Experts experts;
};

/// Of ml_experts_forward(), or of ml_dispatch_plan().
struct ml_trip {
  std::shared_ptr<moeloom::c::Group> group;
  int64_t rows = 0;
  std::unique_ptr<moeloom::c::TripMemory> memory = nullptr;  // of the former; none: spent
  std::unique_ptr<moeloom::c::RowPlan> plan = nullptr;       // of the latter
};
