#include "ways.hpp"

#include "plan/decide/decide_rows.hpp"

#include <algorithm>

namespace moeloom::c {

WayChoice choose_way(RunFacts row, const WayRequest& request, const LayerSizes& sizes) {
  ModelConfig& model = row.model;
  model.num_experts = request.num_experts;
  model.hidden_size = sizes.hidden;
  model.moe_intermediate_size = sizes.intermediate;
  model.num_experts_per_tok = sizes.top_k;
  row.job.batch = {.sequences = row.job.layout.mesh.world(), .length = std::max<Index>(sizes.tokens, 1)};
  RunRequest asked;
  asked.exchange.dispatcher = request.kind;
  asked.exchange.chunks = request.chunks;
  const RowsDecision rows = decide_rows(row, asked, expert_seconds(row, {}));
  WayChoice choice{
      .kind = rows.dispatcher, .chunks = rows.chunks, .reason = std::string(name_of(rows.dispatcher))};
  if (rows.chunks > 0) choice.reason += " in " + std::to_string(rows.chunks) + " chunks";
  choice.reason += ": " + rows.why_dispatcher;
  if (rows.chunks > 0) choice.reason += "; " + rows.why_chunks;
  return choice;
}

}  // namespace moeloom::c
