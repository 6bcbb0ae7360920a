// What a training step costs, phase by phase: a model in the open, each term a function with its formula.
//
// Letters: T tokens of a rank and micro-batch, D hidden size, K experts a token, V vocabulary, S sequence
// length, W ranks, P parameters on a rank. Nothing overlaps but what exposed_seconds() says. Rates are
// machine_rates.hpp's, of one rank with a processor for each of its threads; where a node has more threads
// than processors, all but the network takes oversubscription() times as long. Every exchange of rows waits
// for the fullest rank: mean_busiest_load().
#pragma once

#include "moeloom/base/phase_clock.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/model/layer_spec.hpp"
#include "moeloom/model/parameters.hpp"
#include "moeloom/plan/memory_need.hpp"
#include "moeloom/plan/rates/machine_rates.hpp"

#include <span>
#include <vector>

namespace moeloom {

struct StepCase {
  MeshShape mesh = {};
  Index ranks_per_node = 1;
  Index processors_per_node = 1;
  Index threads = 1;  // of a rank
  DispatcherKind way = DispatcherKind::kAlltoall;
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  Index chunks = 0;  // in which rows travel while experts compute; 0: whole, before and after
  Index tokens = 0;  // of a rank and micro-batch
  Index sequence_length = 0;
  Index micro_batches = 1;  // of a step
  // Rows of each expert, a list for each sparse layer (of several steps, if so many are known), or one for
  // all: their ratios count, and the lists' mean. Empty: even.
  std::vector<std::vector<double>> expert_rows = {};
};

/// max(1, ranks a node * threads / processors a node).
double oversubscription(const StepCase& step);

/// Ranks of an ep row on each of its nodes: neighbours where ep varies fastest, else one in dp of a node's.
Index ep_on_node(const StepCase& step);
ExchangeCase exchange_case(const ModelConfig& config, const StepCase& step);

/// Rows of an expert: `fullest` times the mean for the first, the others share the rest evenly. The least
/// that a rank can be burdened with where no more is known than metrics.jsonl's expert_load.
std::vector<double> rows_with_fullest(Index num_experts, double fullest);
/// Rows of each rank of an ep row over the mean of its ranks.
std::vector<double> rank_loads(std::span<const double> expert_rows, Index ep);
/// max over processors of the sum of its ranks' loads, over that of even ones: the fullest rank's load where
/// each has processors of its own. Else rank r of a node shares a processor with r + P, r + 2 P ..., P =
/// processors / threads, as they are dealt at start; a waiting rank looks busy, so the kernel leaves it
/// there.
double busiest_load(const StepCase& step, std::span<const double> expert_rows);
/// Over the step's lists.
double mean_busiest_load(const StepCase& step);
/// Of the rank with the most rows in all lists together: what its memory holds, over even routing's.
double fullest_rank_load(const StepCase& step);

/// 6 T (sum of out * in of the layer's dense products): forward 2, input gradient 2, weight gradient 2.
double attention_product_flops(const LayerSpec& layer, Index tokens);
/// The same of the dense MLP or the shared expert; 0 where there is neither.
double mlp_product_flops(const LayerSpec& layer, Index tokens);
/// T (S + 1) / 2 pairs of query and key a head, or T w under a window w < S; each 8 head_dim + 6 value_dim.
double score_flops(const AttentionSpec& attention, Index tokens, Index sequence_length);
/// 6 T V D.
double head_flops(const ModelConfig& config, Index tokens);

/// Copy, norm both ways, residual both ways: 10 T D; q and k turned and perhaps normed: 4 or 9 T (q + k).
double attention_elementwise_bytes(const LayerSpec& layer, Index tokens);
/// Copy, norm both ways, residual: 10 T D; an MLP's activation both ways: 9 T F.
double dense_elementwise_bytes(const LayerSpec& layer, Index tokens);

/// Of a layer and micro-batch: each is one direction of forward and the same of backward.
struct ExchangeSeconds {
  double dispatch = 0;
  double combine = 0;
};
/// For even routing and rows that travel whole.
ExchangeSeconds exchange_seconds_of_layer(const ModelConfig& config, const StepCase& step,
                                          const ExchangeRates& rates);
/// What n chunks leave of w seconds on the network beside p seconds of products: max(w / n, w - (1 - 1/n) p).
/// The first chunk has nothing to hide behind on its way out, nor the last one on its way home; of the
/// products a chunk's share is not counted as cover. Of both passes that hides 47, 71 and 83 % in 2, 4 and 8
/// chunks where bench/moe/overlap_hosts.sh measures 51 to 61, 63 to 76 and 70 to 87; forward alone hides more
/// than it says, and backward less.
double exposed_seconds(double wire, double products, Index chunks);
/// Of exchange_seconds_of_layer(): the network's part as each pass leaves it exposed, forward beside a third
/// of the products and backward beside two; copying is work of the processors and stays, and so does a
/// message a direction, as all are posted at once.
ExchangeSeconds overlapped_exchange(const ModelConfig& config, const StepCase& step,
                                    const ExchangeRates& rates, double expert_seconds);
/// What uneven routing adds to combine, where the others wait: b = mean_busiest_load(); (b - 1) of the
/// experts, and of half of both exchanges, because a rank sends or gets back as many rows as any.
double waiting_seconds(double busiest, double expert_seconds, const ExchangeSeconds& exchange);
/// Slots sorted: T K / slots a second. Counts: a message to each rank of the node, and where ep leaves it
/// rounds between nodes as Open MPI's MPI_Alltoall makes for few bytes: one, because all are posted at once,
/// and from 16 ranks on ceil(log2 ep) (Bruck et al. 1997; coll/tuned,
/// ompi_coll_tuned_alltoall_intra_dec_fixed). In chunks: ceil(log2 ep) rounds more, for where experts are
/// cut.
double plan_seconds_of_layer(const ModelConfig& config, const StepCase& step, const MachineRates& machine,
                             const ExchangeRates& rates);

/// Elements of each placement that are trained on a rank.
struct Trained {
  double dense = 0;
  double experts = 0;
};
Trained trained_elements(const std::vector<ParameterSpec>& specs);
/// Of them those whose moments a rank owns: dense / W + experts / dp.
double owned_elements(const Trained& trained, const MeshShape& mesh);

/// A reduce-scatter or an all-gather of P elements over a group: 4 P (n - 1) / n bytes out of each rank, in
/// ceil(P / 4 Mi) messages to each other rank. MPI_Alltoallw posts those of a reduce-scatter at once;
/// an all-gather's go round a ring. Reducing also reads and writes 4 P.
double reduction_seconds(double elements, Index group, Index group_on_node, const StepCase& step,
                         const ExchangeRates& rates, bool sums);

/// What carries rows and gradients: the machine's rates, slower where cores are shared, and the network. A
/// link that was not measured is taken from copying: half its bandwidth, a microsecond a message.
ExchangeRates link_rates(const MachineRates& machine, const StepCase& step);

using PhaseSeconds = std::array<double, kPhases>;

/// A whole step. expert_seconds: of one layer and micro-batch, of even routing, as the GMM policy predicts
/// for a rank alone; they take machine.expert_slowdown times as long beside the others.
PhaseSeconds step_seconds(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                          const StepCase& step, const MachineRates& machine, double expert_seconds);
double total(const PhaseSeconds& seconds);

/// What a rank holds in such a step whose parameters these are. packs: experts read packed faces of
/// `element`.
MemoryNeed step_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                       const StepCase& step, bool packs, DType element);

/// Bytes that one rank sends in a step, to any other rank, as StepReport::message_bytes counts them.
double step_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const StepCase& step);

}  // namespace moeloom
