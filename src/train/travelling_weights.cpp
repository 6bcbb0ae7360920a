#include "travelling_weights.hpp"

#include <utility>

namespace moeloom {

/// From the next rank on, so that not all begin with the same one.
TravellingWeights::Travelling::Travelling(const Stretched& stretch)
    : place(stretch.place), messages(*stretch.ranks, Channel::kWeights) {
  const Index ranks = stretch.ranks->size(), rank = stretch.ranks->rank();
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index from = (rank + turn) % ranks;
    messages.receive_bytes(static_cast<int>(from), stretch.parts[at(from)]);
  }
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index to = (rank + ranks - turn) % ranks;
    messages.send_bytes(static_cast<int>(to), stretch.parts[at(rank)]);
  }
}

void TravellingWeights::begin(Stretched stretch) {
  waiting_.push_back(std::move(stretch));
  progress();
}

void TravellingWeights::send_off() {
  while (!waiting_.empty() && travelling_.size() < at_once_) {
    travelling_.emplace_back(waiting_.front());
    waiting_.pop_front();
  }
}

void TravellingWeights::take_first() {
  travelling_.front().messages.finish();
  travelling_.pop_front();
  send_off();
}

void TravellingWeights::progress() {
  send_off();
  while (!travelling_.empty() && travelling_.front().messages.all_ended()) take_first();
}

void TravellingWeights::await(Index place) {
  send_off();
  while (!travelling_.empty() && travelling_.front().place <= place) take_first();
}

}  // namespace moeloom
