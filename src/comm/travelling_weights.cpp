#include "comm/travelling_weights.hpp"

#include "comm/node_map.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {

/// From the next rank on, so that not all begin with the same one.
TravellingWeights::Travelling::Travelling(Stretched stretch)
    : of(std::move(stretch)),
      from_owners(*of.ranks, Channel::kWeights),
      from_takers(*of.ranks, Channel::kPassedOnWeights) {
  const NodeMap* const map = of.held_by != nullptr ? of.held_by : of.ranks->nodes();
  const Index ranks = of.ranks->size(), rank = of.ranks->rank();
  const auto on_node_of = [&](Index other, Index owner) {
    return map == nullptr ? other : map->taker_on(map->node_of[at(other)], owner);
  };
  const auto comes_straight = [&](Index owner, Index to) {
    const Index by = on_node_of(to, owner);
    return of.held_by == nullptr ? by == to || by == owner : by == to && !map->same_node(owner, to);
  };
  Index letters = 0;
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index owner = (rank + turn) % ranks;
    if (!comes_straight(owner, rank)) continue;
    from_owners.receive_bytes(static_cast<int>(owner), of.parts[at(owner)]);
    if (map != nullptr && of.held_by == nullptr && !map->same_node(owner, rank))
      taken.push_back({owner, letters});
    ++letters;
  }
  std::ranges::sort(taken, {}, &Taken::owner);
  for (Index owner = 0; owner < ranks && of.held_by == nullptr; ++owner)
    if (!comes_straight(owner, rank))
      from_takers.receive_bytes(static_cast<int>(on_node_of(rank, owner)), of.parts[at(owner)]);
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index to = (rank + ranks - turn) % ranks;
    if (comes_straight(rank, to)) from_owners.send_bytes(static_cast<int>(to), of.parts[at(rank)]);
  }
}

bool TravellingWeights::Travelling::pass_on() {
  for (; passed_on < taken.size(); ++passed_on) {
    const auto [owner, letter] = taken[passed_on];
    if (!from_owners.arrived(letter, 1)) return false;
    const NodeMap& map = *of.ranks->nodes();
    const Index rank = of.ranks->rank();
    for (const Index mate : map.members[at(map.node_of[at(rank)])])
      if (mate != rank) from_takers.send_bytes(static_cast<int>(mate), of.parts[at(owner)]);
  }
  return true;
}

void TravellingWeights::Travelling::await() {
  while (!pass_on()) from_owners.wait_for(taken[passed_on].letter, 1);
  from_owners.finish();
  from_takers.finish();
}

void TravellingWeights::begin(Stretched stretch) {
  waiting_.push_back(std::move(stretch));
  progress();
}

void TravellingWeights::send_off() {
  while (!waiting_.empty() && travelling_.size() < at_once_) {
    travelling_.emplace_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void TravellingWeights::pass_on() {
  for (Travelling& stretch : travelling_)
    if (!stretch.pass_on()) return;
}

void TravellingWeights::end_first() {
  travelling_.pop_front();
  send_off();
}

void TravellingWeights::progress() {
  send_off();
  pass_on();
  while (!travelling_.empty() && travelling_.front().all_ended()) end_first();
}

void TravellingWeights::await(Index place) {
  send_off();
  while (!travelling_.empty() && travelling_.front().of.place <= place) {
    pass_on();
    travelling_.front().await();
    end_first();
  }
}

}  // namespace moeloom
