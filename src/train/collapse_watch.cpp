#include "train/collapse_watch.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

Index sum_of(const std::vector<Index>& slots) {
  return std::reduce(slots.begin(), slots.end(), Index{0});
}

double share_of(Index slots_of_expert, const std::vector<Index>& slots, Index top_k) {
  return static_cast<double>(slots_of_expert * top_k) / static_cast<double>(sum_of(slots));
}

}  // namespace

double share_of_tokens(double way, Index top_k, Index num_experts) {
  const double balance = static_cast<double>(top_k) / static_cast<double>(num_experts);
  return balance + way * (1 - balance);
}

CollapseWatch::CollapseWatch(const std::vector<Index>& top_k, CollapseRule rule) : rule_(rule) {
  for (const Index experts : top_k) layers_.emplace_back().top_k = experts;
}

std::vector<CollapseEvent> CollapseWatch::step(Index step,
                                               const std::vector<std::vector<Index>>& chosen_per_expert) {
  require(chosen_per_expert.size() <= layers_.size(), "a layer has no top_k");
  std::vector<CollapseEvent> events;
  for (std::size_t l = 0; l < chosen_per_expert.size(); ++l) {
    const std::vector<Index>& slots = chosen_per_expert[l];
    if (sum_of(slots) == 0) continue;
    Layer& layer = layers_[l];
    count(slots, layer);
    CollapseEvent event = layer.told;
    event.layer = static_cast<Index>(l);
    event.step = step;
    event.begins = !layer.collapsed;
    if (event.begins ? !begins(slots, layer, event) : layer.sound_for < rule_.steps) continue;
    event.share_of_tokens = share_of(slots[at(event.expert)], slots, layer.top_k);
    event.dead_experts = dead_in(layer);
    layer.collapsed = event.begins;
    layer.told = event;
    events.push_back(event);
  }
  return events;
}

void CollapseWatch::resume(const std::vector<CollapseEvent>& told) {
  for (const CollapseEvent& event : told) {
    Layer& layer = layers_[at(event.layer)];
    layer.collapsed = event.begins;
    layer.told = event;
  }
}

void CollapseWatch::count(const std::vector<Index>& slots, Layer& layer) const {
  const Index experts = std::ssize(slots);
  const double hot = share_of_tokens(rule_.hot_begins, layer.top_k, experts);
  layer.hot_for.resize(slots.size());
  layer.dead_for.resize(slots.size());
  const bool tells_of_dead = sum_of(slots) >= experts;
  for (std::size_t e = 0; e < slots.size(); ++e) {
    layer.hot_for[e] = share_of(slots[e], slots, layer.top_k) > hot ? layer.hot_for[e] + 1 : 0;
    if (slots[e] > 0)
      layer.dead_for[e] = 0;
    else if (tells_of_dead)
      ++layer.dead_for[e];
  }
  layer.sound_for = is_sound(slots, layer) ? layer.sound_for + 1 : 0;
}

/// Where several experts are hot the fullest of them is named.
bool CollapseWatch::begins(const std::vector<Index>& slots, const Layer& layer, CollapseEvent& event) const {
  event.since = event.step;
  event.sign = CollapseSign::kHotExpert;
  Index fullest = 0;
  for (std::size_t e = 0; e < slots.size(); ++e) {
    if (layer.hot_for[e] < rule_.steps || slots[e] <= fullest) continue;
    fullest = slots[e];
    event.expert = static_cast<Index>(e);
  }
  if (fullest > 0) return true;
  const auto experts = static_cast<double>(slots.size());
  const Index dead = dead_in(layer);
  if (dead == 0 || static_cast<double>(dead) < rule_.dead_begins * experts) return false;
  event.sign = CollapseSign::kDeadExperts;
  const auto first = std::ranges::find_if(layer.dead_for, [&](Index steps) { return steps >= rule_.steps; });
  event.expert = first - layer.dead_for.begin();
  return true;
}

/// At most what ends a collapse, in this step.
bool CollapseWatch::is_sound(const std::vector<Index>& slots, const Layer& layer) const {
  const Index experts = std::ssize(slots);
  const double share = share_of(std::ranges::max(slots), slots, layer.top_k);
  const Index dead = dead_in(layer);
  return share <= share_of_tokens(rule_.hot_ends, layer.top_k, experts) &&
         (dead == 0 || static_cast<double>(dead) < rule_.dead_ends * static_cast<double>(experts));
}

Index CollapseWatch::dead_in(const Layer& layer) const {
  return std::ranges::count_if(layer.dead_for, [&](Index steps) { return steps >= rule_.steps; });
}

}  // namespace moeloom
