// What the exchange of one sparse layer adds to a step, whole or in chunks behind its experts' products.
#pragma once

#include "plan/cost/exchange_case.hpp"
#include "plan/rates/machine_rates.hpp"

namespace moeloom {

/// What carries rows and gradients: the machine's rates, slower where cores are shared, and the network. A
/// link that was not measured is taken from copying: half its bandwidth, a microsecond a message.
ExchangeRates link_rates(const MachineRates& machine, const Job& job);

/// Of a layer and micro-batch: each is one direction of forward and the same of backward.
struct ExchangeSeconds {
  double dispatch = 0;
  double combine = 0;
};
/// For even routing and rows that travel whole.
ExchangeSeconds exchange_seconds_of_layer(const ModelConfig& config, const Job& job,
                                          const ExchangeRates& rates);
/// What n chunks leave of w seconds on the network beside p seconds of products: max(f w, w - (1 - 1/n) p),
/// where a share f travels with the first chunk on its way out, which has nothing to hide behind, or with the
/// last one on its way home; of the products a chunk's share is not counted as cover. Of both passes that
/// hides 47, 71 and 83 % in 2, 4 and 8 chunks where bench/moe/overlap_hosts.sh measures 51 to 61, 63 to 76
/// and 70 to 87; forward alone hides more than it says, and backward less.
double exposed_seconds(double wire, double products, Index chunks, double share_alone);
/// 1 / n, as experts are even. By `hierarchical` a token leaves with the first chunk that needs it, so
/// D(N n) / (n D(N)) of them with the first, D = groups_visited() of E and K on N nodes.
double share_of_first_chunk(DispatcherKind kind, const ExchangeCase& exchange, Index chunks);
/// The same of the last one home: with combine = fast as out, as sums wait for the last of their rows.
double share_of_last_chunk(DispatcherKind kind, const ExchangeCase& exchange, Index chunks);
/// Of exchange_seconds_of_layer(): the network's part as each pass leaves it exposed, forward beside a third
/// of the products and backward beside two; copying is work of the processors and stays, and so does a
/// message a direction, as all are posted at once.
ExchangeSeconds overlapped_exchange(const ModelConfig& config, const Job& job, const ExchangeRates& rates,
                                    double expert_seconds);
/// What uneven routing adds to combine, where the others wait: b = mean_busiest_load(); (b - 1) of the
/// experts, and of half of both exchanges, because a rank sends or gets back as many rows as any. Of m ranks
/// of the row on a node, whose link they share, (b - 1) / m of the exchanges; and as long as the busiest one
/// computes, the others' rows, (m - 1) / m of the combine, are on their way.
double waiting_seconds(double busiest, Index on_node, double expert_seconds, const ExchangeSeconds& exchange);
/// Slots sorted: T K / slots a second. Counts: a message to each rank of the node, and where ep leaves it
/// rounds between nodes as Open MPI's MPI_Alltoall makes for few bytes: one, because all are posted at once,
/// and from 16 ranks on ceil(log2 ep) (Bruck et al. 1997; coll/tuned,
/// ompi_coll_tuned_alltoall_intra_dec_fixed). In chunks: ceil(log2 ep) rounds more, for where experts are
/// cut. hierarchical: as many as for the counts for where rows begin, and one for where copies land.
double plan_seconds_of_layer(const ModelConfig& config, const Job& job, const MachineRates& machine,
                             const ExchangeRates& rates);

}  // namespace moeloom
