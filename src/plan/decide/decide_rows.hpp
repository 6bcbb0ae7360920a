// Of a run's decision what concerns rows: the dispatcher, and the chunks in which they travel.
#pragma once

#include "plan/decide/decide.hpp"

namespace moeloom {

struct RowsDecision {
  DispatcherKind dispatcher = DispatcherKind::kAlltoall;
  std::string why_dispatcher;
  Index chunks = 0;
  std::string why_chunks;
};

/// Pure. expert_seconds: of a layer and micro-batch. Throws ConfigError as decide() does.
RowsDecision decide_rows(const RunFacts& facts, const RunRequest& request, double expert_seconds);

}  // namespace moeloom
