// What a run writes beside its checkpoints and its metrics: where the system refuses it, that is said, and
// the run goes on without it.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <functional>

#include "record/log.hpp"

namespace moeloom {

class Outputs {
 public:
  /// Both until it has gone.
  Outputs(const Communicator& world, const Log& log) : world_(world), log_(log) {}

  /// Every rank runs `write` -> whether all could. `what` is lost otherwise, and rank 0 says so. Collective.
  bool write(const char* what, const std::function<void()>& write);
  bool lost() const { return lost_; }

 private:
  const Communicator& world_;
  const Log& log_;
  bool lost_ = false;
};

}  // namespace moeloom
