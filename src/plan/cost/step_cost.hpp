// What a training step costs, phase by phase: a model in the open, each term a function with its formula.
//
// Letters: T tokens of a rank and micro-batch, D hidden size, K experts a token, V vocabulary, S sequence
// length, W ranks, P parameters on a rank. Rates are
// machine_rates.hpp's, of one rank with a processor for each of its threads; where a node has more threads
// than processors, all but the network takes oversubscription() times as long. Every exchange of rows waits
// for the fullest rank: mean_busiest_load().
#pragma once

#include "base/phase_clock.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/model/hf/config.hpp"
#include "plan/cost/expert_load.hpp"
#include "plan/cost/layer_exchange.hpp"
#include "plan/cost/mixer_cost.hpp"
#include "plan/memory/memory_need.hpp"

#include <vector>

namespace moeloom {

/// 6 T (sum of out * in) of the dense MLP or the shared expert; 0 where there is neither.
double mlp_product_flops(const LayerSpec& layer, Index tokens);
/// 6 T V D.
double head_flops(const ModelConfig& config, Index tokens);

/// Of the products of a placement's weights, forward, input and weight gradients, what is made: where the
/// weights rest, or only adapters beside them learn, two of three.
double share_made(const std::vector<ParameterSpec>& specs, Placement placement);

/// Copy, norm both ways, residual: 10 T D; an MLP's activation both ways: 9 T F.
double dense_elementwise_bytes(const LayerSpec& layer, Index tokens);

/// Elements of each placement that are trained on a rank.
struct Trained {
  double dense = 0;
  double experts = 0;
};
Trained trained_elements(const std::vector<ParameterSpec>& specs);
/// Of them those whose moments a rank owns: dense / W + experts / dp.
double owned_elements(const Trained& trained, const MeshShape& mesh);

/// A reduce-scatter (`sums`) or an all-gather of P elements over the n ranks of a group, m of them on a node.
struct GroupExchange {
  double elements = 0;
  Index group = 1, on_node = 1;
  bool sums = false;
  bool crosses_once = false;  // what is equal for the m ranks crosses a link once (Communicator::nodes)
};
/// Whether it does.
bool may_cross_once(const GroupExchange& reduction);
/// 4 P (n - 1) / n bytes out of each rank, in ceil(P / 4 Mi) messages to each other rank, all at once.
/// Reducing also reads and writes 4 P.
/// What crosses once, of N = n / m nodes, is 4 P (N - 1) / n bytes out of each rank, and 4 P (m - 1) / m stay
/// in the node, before a sum crosses or after a gather has. A sum is then made in two parts.
double reduction_seconds(const GroupExchange& reduction, const Job& job, const ExchangeRates& rates);

/// Seconds of one rank's processor for the bytes that leave it, and as many that come, by TCP beside
/// products.
double tcp_seconds(double bytes);

using PhaseSeconds = std::array<double, kPhases>;

/// A whole step; products last tcp_seconds() longer beside what travels. expert_seconds: of one layer and
/// micro-batch, of even routing, as the GMM policy predicts for a rank alone; they take
/// machine.expert_slowdown times as long beside the others.
PhaseSeconds step_seconds(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                          const MachineRates& machine, double expert_seconds);
double total(const PhaseSeconds& seconds);

/// What a rank holds in such a step whose parameters these are. packs: experts read packed faces of
/// `element`.
MemoryNeed step_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                       bool packs, DType element);

/// Bytes that one rank sends in a step, to any other rank, as StepReport::message_bytes counts them.
double step_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job);

}  // namespace moeloom
