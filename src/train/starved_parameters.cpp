#include "train/starved_parameters.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace moeloom {
namespace {

bool any(std::span<const float> values) {
  return std::ranges::any_of(values, [](float value) { return value != 0; });
}

/// Where a parameter's groups begin in a list of those of all trained parameters; the same on every rank.
std::vector<Index> places_of(const ParameterStore& store, Index& size) {
  std::vector<Index> places;
  size = 0;
  for (const Parameter& parameter : store.parameters()) {
    places.push_back(size);
    if (!parameter.spec.frozen) size += parameter.spec.total_groups;
  }
  return places;
}

bool is_starved(const ParameterSpec& spec, Index expert, const std::vector<std::vector<Index>>& steps) {
  return spec.placement == Placement::kExperts && spec.layer < std::ssize(steps) &&
         expert < std::ssize(steps[at(spec.layer)]) && steps[at(spec.layer)][at(expert)] < 2;
}

}  // namespace

std::vector<NoGradient> without_gradient(const ParameterStore& store, ShardedOptimizer& optimizer,
                                         const Mesh& mesh,
                                         const std::vector<std::vector<Index>>& steps_with_rows) {
  Index size = 0;
  const std::vector<Index> places = places_of(store, size);
  std::vector<std::int64_t> learnt(at(size), 0);
  for (const OwnedBlock& block : optimizer.owned_blocks()) {
    const ParameterSpec& spec = store.parameters()[at(block.parameter)].spec;
    const Index place = places[at(block.parameter)] + spec.group_ids[at(block.group)];
    learnt[at(place)] +=
        any(optimizer.moments_of(block, block.second < 0 ? Moment::kFirst : Moment::kSecond).words()) ? 1 : 0;
  }
  mesh.world().all_sum(learnt);
  std::vector<NoGradient> found;
  for (std::size_t p = 0; p < places.size(); ++p) {
    const ParameterSpec& spec = store.parameters()[p].spec;
    for (Index group = 0; group < spec.total_groups && !spec.frozen; ++group)
      if (learnt[at(places[p] + group)] == 0)
        found.push_back({.parameter = spec.name,
                         .expert = spec.placement == Placement::kExperts ? group : -1,
                         .starved = is_starved(spec, group, steps_with_rows)});
  }
  return found;
}

}  // namespace moeloom
