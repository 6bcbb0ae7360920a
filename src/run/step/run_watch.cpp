#include "step/run_watch.hpp"

#include <utility>

namespace moeloom {

RunWatch::RunWatch(const OpenedRun& run, const Index& next_step)
    : run_(run), next_step_(next_step), board_(run.host.board == nullptr ? own_board_ : *run.host.board) {}

void RunWatch::look_at(TrainingState& model, std::vector<Fault> faults) {
  PhaseClock& clock = model.decoder.clock();
  clock.show_on(&board_);
  std::erase_if(faults, [&](const Fault& fault) { return fault.rank != run_.world().rank(); });
  if (faults.empty()) return;
  faults_.emplace(std::move(faults), run_.file("faults.log"), model.store);
  clock.on_enter([this] { faults_->meet(board_.read(), next_step_); });
}

void RunWatch::enter(Activity activity) {
  board_.enter(activity);
  if (faults_) faults_->meet(board_.read(), next_step_);
}

}  // namespace moeloom
