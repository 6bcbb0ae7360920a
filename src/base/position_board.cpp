#include "moeloom/base/position_board.hpp"

namespace moeloom {

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::kStarting:
      return "starting";
    case Activity::kLoading:
      return "loading";
    case Activity::kTraining:
      return "training";
    case Activity::kValidating:
      return "validating";
    case Activity::kSaving:
      return "saving";
    case Activity::kEnding:
      break;
  }
  return "ending";
}

Position PositionBoard::read() const {
  Position position;
  position.moves = moves_.load(std::memory_order_acquire);
  position.activity = activity_.load(std::memory_order_relaxed);
  position.step = step_.load(std::memory_order_relaxed);
  position.micro_batch = micro_batch_.load(std::memory_order_relaxed);
  position.layer = layer_.load(std::memory_order_relaxed);
  position.backward = backward_.load(std::memory_order_relaxed);
  position.phase = phase_.load(std::memory_order_relaxed);
  if (const char* call = call_.load(std::memory_order_relaxed)) position.call = call;
  position.waits_for = waits_for_.load(std::memory_order_relaxed);
  return position;
}

}  // namespace moeloom
