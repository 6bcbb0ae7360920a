// A job and a machine with round figures, for tests of predictions.
#pragma once

#include "plan/predict.hpp"

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

/// Of 4 sequences a rank.
inline PlannedJob made_up_job(Index ranks, Index per_node) {
  return {
      .config = {},
      .job = {.batch = {.sequences = 4 * ranks, .length = 256},
              .layout = {.mesh = {.dp = ranks}, .ranks_per_node = per_node, .processors_per_node = per_node}},
      .memory_per_node = 64e9,
      .gmm_budget_bytes = Index{4} << 30};
}

/// So many of a rank and micro-batch, as one sequence.
inline void give_tokens(Job& job, Index tokens) {
  job.batch.length = tokens;
  job.batch.sequences = job.layout.mesh.world() * job.batch.micro_batches;
}

/// So many of a step, each as large as before.
inline void give_micro_batches(Job& job, Index count) {
  job.batch.sequences = job.batch.sequences / job.batch.micro_batches * count;
  job.batch.micro_batches = count;
}

}  // namespace moeloom::testing
