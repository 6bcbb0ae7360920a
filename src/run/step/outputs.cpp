#include "step/outputs.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

bool Outputs::write(const char* what, const std::function<void()>& write) {
  try {
    agree(world_, write);
    return true;
  } catch (const AgreedError& error) {
    lost_ = true;
    if (world_.rank() == 0) log_.warn(Event().with(what, "not written").with("reason", error.what()));
    return false;
  }
}

}  // namespace moeloom
