#include "moeloom/base/meanwhile.hpp"

#include <utility>

#include "stand_in.hpp"

namespace moeloom {
namespace {

thread_local const Meanwhile* latest = nullptr;
thread_local StandIn* stand_in = nullptr;

}  // namespace

StandIn*& stand_in_of_thread() {
  return stand_in;
}

bool anything_stands() {
  return latest != nullptr;
}

Meanwhile::Meanwhile(Interlude work) : work_(work), before_(std::exchange(latest, this)) {
  if (before_ == nullptr && stand_in != nullptr) stand_in->say(&StandIn::stands, true);
}

Meanwhile::~Meanwhile() {
  latest = before_;
  if (latest == nullptr && stand_in != nullptr) stand_in->say(&StandIn::stands, false);
}

void Meanwhile::do_all(const Meanwhile* latest_of_all) {
  struct Suspended {
    const Meanwhile* all = std::exchange(latest, nullptr);
    ~Suspended() { latest = all; }
  } const suspended;
  for (const Meanwhile* each = latest_of_all; each != nullptr; each = each->before_) each->work_();
}

void do_meanwhile() {
  if (latest == nullptr) return;
  if (stand_in == nullptr || !stand_in->computes) return Meanwhile::do_all(latest);
  if (!stand_in->is_late()) return;
  if (const std::unique_lock turn(stand_in->turn, std::try_to_lock); turn) Meanwhile::do_all(latest);
}

Computing::Computing() {
  if (latest == nullptr || stand_in == nullptr || stand_in->computes) return;
  left_to_ = stand_in;
  left_to_->works = latest;
  left_to_->failure = nullptr;  // of a loop that ended by a task's exception
  left_to_->computes = true;
  left_to_->turn.unlock();
}

void Computing::take_back() noexcept {
  if (left_to_ == nullptr) return;
  left_to_->turn.lock();
  left_to_->computes = false;
  left_to_->works = nullptr;
  left_to_ = nullptr;
}

void Computing::end() {
  StandIn* const left_to = left_to_;
  take_back();
  if (left_to != nullptr && left_to->failure)
    std::rethrow_exception(std::exchange(left_to->failure, nullptr));
}

}  // namespace moeloom
