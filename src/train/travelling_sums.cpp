#include "travelling_sums.hpp"

#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
void TravellingSums::begin(Stretched stretch) {
  waiting_.push_back(std::move(stretch));
  progress();
}

/// From the next rank on, so that not all begin with the same one.
TravellingSums::Travelling::Travelling(Stretched stretch, Matrix memory)
    : of(std::move(stretch)), received(std::move(memory)), messages(*of.ranks, Channel::kSums) {
  const Index ranks = of.ranks->size(), rank = of.ranks->rank();
  const auto part_of = [&](Index other) { return Stretch{of.offsets[at(other)], of.offsets[at(other + 1)]}; };
  mine = part_of(rank);
  const Index owned = mine.size();
  received.reshape_uninitialised(ranks, owned);
  std::copy_n(of.gradients.data() + mine.begin, owned, received.row(rank));
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index from = (rank + turn) % ranks;
    messages.receive(static_cast<int>(from), {received.row(from), at(owned)});
  }
  for (Index turn = 1; turn < ranks; ++turn) {
    const Index to = (rank + ranks - turn) % ranks;
    messages.send(static_cast<int>(to), of.gradients.subspan(at(part_of(to).begin), at(part_of(to).size())));
  }
}

void TravellingSums::send_off() {
  while (!waiting_.empty() && travelling_.size() < at_once_) {
    Matrix memory;
    if (!memory_.empty()) {
      memory = std::move(memory_.back());
      memory_.pop_back();
    }
    travelling_.emplace_back(std::move(waiting_.front()), std::move(memory));
    waiting_.pop_front();
  }
}

void TravellingSums::add_up(Travelling& sum) {
  adds_up_ = true;
  sum.messages.finish();
  const Index owned = sum.mine.size();
  if (owned > 0)
    tree_sum_blocks(sum.received.view().data, sum.received.rows(), owned, owned,
                    sum.of.gradients.data() + sum.mine.begin);
  sum.of.done();
  memory_.push_back(std::move(sum.received));
  adds_up_ = false;
}

/// One whose part is empty hears nothing, and must not wait for those who take from it: they may be in a
/// collective that waits for this rank.
void TravellingSums::progress() {
  if (adds_up_) return;  // asked by a loop of its own
  send_off();
  while (!travelling_.empty() && travelling_.front().messages.all_ended()) {
    add_up(travelling_.front());
    travelling_.pop_front();
    send_off();
  }
}

void TravellingSums::finish() {
  send_off();
  while (!travelling_.empty()) {
    add_up(travelling_.front());
    travelling_.pop_front();
    send_off();
  }
}

}  // namespace moeloom
