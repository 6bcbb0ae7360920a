#include "plan/memory/row_budget.hpp"

#include <algorithm>

namespace moeloom {

RowRange row_range(const ModelConfig& config, const Job& job) {
  if (!config.has_experts()) return {};
  const Index ep = job.layout.mesh.ep, top_k = config.num_experts_per_tok;
  const Index resident = experts_of(config.num_experts, ep, 0).count;  // the most that a rank holds
  const Index of_a_token = ep * std::min(top_k, resident);
  return {.least = of_a_token, .balanced = job.tokens() * top_k, .most = job.tokens() * of_a_token};
}

MemoryNeed memory_of_rows(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                          bool packs, DType element, Index rows) {
  return training_memory(config, specs, job, {.at_once = rows, .planned = row_range(config, job).most}, packs,
                         element);
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
