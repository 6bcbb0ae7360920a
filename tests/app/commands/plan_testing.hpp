// What tests of the planner share: the rates of a machine that nobody has, in round numbers.
#pragma once

#include "moeloom/plan/rates/machine_rates.hpp"

namespace moeloom::testing {

/// Measured by so many ranks of one node; nothing is known of a network.
inline MachineRates rates(Index ranks) {
  return {.dense_flops = {1e10, 2e10, 4e10, 4e10},
          .attention_flops = 1e10,
          .head_flops = 2e10,
          .router_tokens = 1e6,
          .plan_slots = 1e8,
          .elementwise_bytes = 1e10,
          .copy_bytes = 1e10,
          .updated_elements = 1e9,
          .ranks = ranks,
          .node_ranks = ranks,
          .node_message_seconds = ranks > 1 ? 1e-6 : 0.0,
          .node_bytes = ranks > 1 ? 5e9 : 0.0};
}

}  // namespace moeloom::testing
