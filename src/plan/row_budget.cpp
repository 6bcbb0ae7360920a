#include "moeloom/plan/row_budget.hpp"

#include <algorithm>

namespace moeloom {

RowRange row_range(const ModelConfig& config, const StepCase& step) {
  if (!config.has_experts()) return {};
  const Index ep = step.mesh.ep, top_k = config.num_experts_per_tok;
  const Index resident = experts_of(config.num_experts, ep, 0).count;  // the most that a rank holds
  const Index of_a_token = ep * std::min(top_k, resident);
  return {.least = of_a_token, .balanced = step.tokens * top_k, .most = step.tokens * of_a_token};
}

MemoryNeed memory_of_rows(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                          const StepCase& step, bool packs, DType element, Index rows) {
  MicroBatchShape batch = micro_batch_of(step, rows);
  batch.planned_rows = row_range(config, step).most;
  return training_memory(config, specs, step.mesh, step.kind, batch, packs, element);
}

RowRoom row_room(double ceiling, const RowRange& range, const std::function<MemoryNeed(Index rows)>& need) {
  RowRoom room{.ceiling = ceiling, .range = range, .rows = 0, .memory = need(range.most)};
  if (room.fits()) return room;
  room.rows = range.least;
  room.memory = need(range.least);
  if (!room.fits()) return room;
  for (Index too_many = range.most; room.rows + 1 < too_many;) {
    const Index rows = room.rows + (too_many - room.rows) / 2;
    const MemoryNeed memory = need(rows);
    if (memory.total() > ceiling) {
      too_many = rows;
      continue;
    }
    room.rows = rows;
    room.memory = memory;
  }
  return room;
}

}  // namespace moeloom
