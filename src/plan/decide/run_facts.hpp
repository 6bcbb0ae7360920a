// What decide() must know of a mesh and its machines, found by asking them; and what it decided, opened.
#pragma once

#include "moe/dispatch/dispatcher.hpp"
#include "moeloom/comm/mesh.hpp"
#include "plan/decide/decide.hpp"

namespace moeloom {

/// Facts of this mesh. `work`: tokens, sequence length, micro-batches, pretended nodes and threads of a rank,
/// of which the fewest count; the mesh and its nodes are filled in, with processors for every thread.
/// Measures nothing. Collective over the world, the same on every rank.
RunFacts find_run_facts(const ModelConfig& model, const Mesh& mesh, Job work);

/// Of one ep row what decide_rows() must know beside the layers' sizes. layout: the ranks on a node,
/// pretended nodes and threads of this rank. Collective over `ep`, the same on every rank of it.
RunFacts find_row_facts(const Communicator& ep, Layout layout);

/// Facts of a mesh that is not there: nodes as `work` has them, memory that can be shared, this CPU's
/// instructions.
RunFacts facts_of_job(const ModelConfig& model, const Job& work);

/// What the dispatcher that was decided on needs. Collective over the world; throws AgreedError on every rank
/// if one cannot open another's memory.
DispatcherSettings open_dispatcher(const RunDecision& decision, const Mesh& mesh, Index num_experts);

}  // namespace moeloom
