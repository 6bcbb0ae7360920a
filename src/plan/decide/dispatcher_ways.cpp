#include "plan/decide/dispatcher_ways.hpp"

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

using Kind = DispatcherKind;

//   kind, crosses nodes, needs node memory, rounds, sums before the wire
constexpr std::array<DispatcherWay, kDispatcherKinds.size()> kWays = {{
    {Kind::kShared, false, true, OnWire::kNowhere, false},
    {Kind::kHierarchical, true, true, OnWire::kBetweenNodes, true},
    {Kind::kAlltoall, true, false, OnWire::kBetweenRanks, false},
}};

}  // namespace

std::span<const DispatcherWay> dispatcher_ways() {
  return kWays;
}

const DispatcherWay& way_of(DispatcherKind kind) {
  return *std::ranges::find(kWays, kind, &DispatcherWay::kind);
}

}  // namespace moeloom
