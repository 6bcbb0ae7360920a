#include "decide/decide_exact.hpp"

#include "base/text.hpp"
#include "moeloom/base/violations.hpp"

namespace moeloom {
namespace {

/// Bytes that a rank sends more in a step: integers of eight bytes for floats of four, and counts.
double more_message_bytes(const RunFacts& facts, const RunDecision& decision) {
  const MeshShape& mesh = facts.job.layout.mesh;
  double bytes = 0;
  for (const ParameterSpec& spec : facts.parameters) {
    if (spec.frozen) continue;
    const Index ranks = spec.placement == Placement::kWorld ? mesh.world() : mesh.dp;
    bytes += 4.0 * static_cast<double>(spec.rows * spec.cols) * (1 - 1 / static_cast<double>(ranks));
  }
  if (mesh.ep == 1) return bytes;
  Index sparse = 0;
  for (Index layer = 0; layer < facts.model.num_hidden_layers; ++layer)
    sparse += facts.model.is_sparse(layer);
  const Index leaves = decision.job.sequences() / facts.job.batch.exact;
  const Index experts = experts_of(facts.model.num_experts, mesh.ep, 0).count;
  return bytes +
         8.0 * static_cast<double>(facts.job.batch.micro_batches * sparse * (mesh.ep - 1) * experts * leaves);
}

}  // namespace

void check_exact(const RunFacts& facts, const RunDecision& decision, Violations& violations) {
  if (facts.job.batch.exact == 0) return;
  for (const char* id : {"fused_moe", "tiled_dense"}) {
    if (id == std::string_view("fused_moe") && !facts.model.has_experts()) continue;
    const std::string why = why_not_applied(decision.kernels, id);
    violations.unless(why.empty(), "exact sums = " + std::to_string(facts.job.batch.exact) +
                                       " needs the kernel " + id +
                                       ", because OpenBLAS chooses an order by the " +
                                       "number of rows, but it is not applied: " + why);
  }
}

std::string exact_cost(const RunFacts& facts, const RunDecision& decision) {
  if (facts.job.batch.exact == 0) return {};
  std::string reason = "the same bits on every mesh whose micro-batches are multiples of " +
                       std::to_string(facts.job.batch.exact) +
                       (facts.job.batch.exact == 1 ? " sequence" : " sequences");
  if (facts.job.batch.micro_batches > 1)
    reason +=
        "; what is counted over a micro-batch, as the auxiliary loss by default, depends on their number";
  if (!facts.parameters.empty()) {
    const LastingMemory memory = lasting_memory(facts.parameters, facts.job);
    reason += "; it costs a rank " + bytes_text(memory.exact_sums) + " of memory and " +
              bytes_text(more_message_bytes(facts, decision)) + " of messages a step";
    if (facts.job.layout.mesh.ep > 1) reason += ", one of them for each sparse layer of a micro-batch";
  }
  return reason;
}

}  // namespace moeloom
