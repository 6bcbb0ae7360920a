// What is asked of the thread that moves messages (base/progress_thread.hpp).
#pragma once

#include "moeloom/base/index.hpp"

#include <optional>

namespace moeloom {

struct ProgressRequest {
  std::optional<bool> on = {};          // none: auto
  std::optional<Index> processor = {};  // of its node, that it is bound to; then it is on
};

}  // namespace moeloom
