// A job and a machine with round figures, for tests of predictions.
#pragma once

#include "moeloom/plan/predict.hpp"

namespace moeloom::testing {

/// Measured by so many ranks of one node; network: bytes a second, 0: not measured.
inline MachineRates made_up_rates(Index ranks, double network = 0) {
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
          .node_bytes_per_second = ranks > 1 ? 5e9 : 0.0,
          .network_message_seconds = network > 0 ? 1e-5 : 0.0,
          .network_bytes_per_second = network};
}

inline Job made_up_job(Index ranks, Index per_node) {
  return {.config = {},
          .ranks = ranks,
          .ranks_per_node = per_node,
          .processors_per_node = per_node,
          .memory_per_node = 64e9,
          .tokens = 1024,
          .sequence_length = 256,
          .gmm_budget_bytes = Index{4} << 30};
}

}  // namespace moeloom::testing
