// How rows of a layer travel, decided as a run decides it (plan/decide/decide_rows.hpp) from what a call
// brings.
#pragma once

#include "moe/routed_experts.hpp"
#include "plan/decide/run_facts.hpp"

#include <optional>
#include <string>

namespace moeloom::c {

/// What a caller asks; none: decided.
struct WayRequest {
  Index num_experts = 0;
  std::optional<DispatcherKind> kind = {};
  std::optional<Index> chunks = {};
  Index pretended_nodes = 0;
};

/// What a layer's calls have; tokens: the most of any rank.
struct LayerSizes {
  Index hidden = 1, intermediate = 1, top_k = 1, tokens = 1;
};

struct WayChoice {
  DispatcherKind kind = DispatcherKind::kAlltoall;
  Index chunks = 0;
  std::string reason = {};  // "shared: the 2 ranks of ep share their node's memory, ..."
};

/// Pure. row: of find_row_facts(). Throws ConfigError for what was asked for and cannot be.
WayChoice choose_way(RunFacts row, const WayRequest& request, const LayerSizes& sizes);

}  // namespace moeloom::c
