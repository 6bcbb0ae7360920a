#include "moeloom/base/progress_thread.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <pthread.h>
#include <sched.h>
#include <string>
#include <system_error>

#include "stand_in.hpp"

namespace moeloom {
namespace {

/// -> an error number; 0: it is bound.
int bind(std::thread& thread, int processor) {
  if (processor < 0 || processor >= CPU_SETSIZE) return EINVAL;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  return pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

void look(StandIn& shared) {
  const std::unique_lock turn(shared.turn, std::try_to_lock);
  if (!turn || shared.works == nullptr || shared.failure) return;
  try {
    Meanwhile::do_all(shared.works);
    ++shared.looks;
  } catch (...) {
    shared.failure = std::current_exception();
  }
  shared.last_look = std::chrono::steady_clock::now();
}

void look_until_the_end(StandIn& shared, std::chrono::nanoseconds between_looks) {
  set_threads(1);  // a team of its own would take the processors of those who compute
  std::unique_lock lock(shared.waking);
  while (true) {
    shared.changed.wait(lock, [&] { return shared.ends || shared.stands; });
    if (shared.ends) return;
    lock.unlock();
    look(shared);
    lock.lock();
    shared.changed.wait_for(lock, between_looks, [&] { return shared.ends; });
  }
}

}  // namespace

ProgressThread::ProgressThread(const Settings& settings) : shared_(std::make_unique<StandIn>()) {
  require(stand_in_of_thread() == nullptr, "a thread has one progress thread at most");
  thread_ = std::thread(look_until_the_end, std::ref(*shared_), settings.between_looks);
  pthread_setname_np(thread_.native_handle(), "messages");
  if (const int error = settings.processor ? bind(thread_, *settings.processor) : 0; error != 0) {
    shared_->say(&StandIn::ends, true);
    thread_.join();
    throw std::system_error(
        error, std::generic_category(),
        "a progress thread may not run on processor " + std::to_string(*settings.processor));
  }
  shared_->turn.lock();
  stand_in_of_thread() = shared_.get();
  shared_->say(&StandIn::stands, anything_stands());
}

ProgressThread::~ProgressThread() {
  stand_in_of_thread() = nullptr;
  shared_->turn.unlock();
  shared_->say(&StandIn::ends, true);
  thread_.join();
}

long ProgressThread::looks() const {
  return shared_->looks;
}

}  // namespace moeloom
