#include "comm/travelling_sums.hpp"

#include <limits>
#include <utility>

namespace moeloom {
namespace {

constexpr Index kAll = std::numeric_limits<Index>::max();
/// Of four ranks half a millisecond, in which whatever else travels waits.
constexpr Index kAddedAtOnce = Index{1} << 18;

}  // namespace

void TravellingSums::begin(StretchOfGradients stretch) {
  waiting_.push_back(std::move(stretch));
  progress();
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

void TravellingSums::pass_on() {
  for (TravellingSum& sum : travelling_)
    if (!sum.pass_on()) return;
}

void TravellingSums::end_first() {
  memory_.push_back(travelling_.front().end());
  travelling_.pop_front();
  send_off();
}

/// One whose part is empty hears nothing, and must not wait for those who take from it: they may be in a
/// collective that waits for this rank.
void TravellingSums::progress() {
  if (adds_up_) return;  // asked by a loop of its own
  adds_up_ = true;
  send_off();
  pass_on();
  for (Index left = kAddedAtOnce; left > 0 && !travelling_.empty() && travelling_.front().has_arrived();) {
    left -= travelling_.front().add_up(left);
    if (travelling_.front().is_added_up()) end_first();
  }
  adds_up_ = false;
}

void TravellingSums::finish() {
  adds_up_ = true;
  send_off();
  while (!travelling_.empty()) {
    pass_on();
    travelling_.front().await();
    travelling_.front().add_up(kAll);
    end_first();
  }
  adds_up_ = false;
}

}  // namespace moeloom
