// How fast this machine does each kind of work of a training step, measured: what the cost model multiplies.
//
// Each rate is of one rank on its threads, while the other ranks of the job do the same: cores share caches,
// memory and clock, so a rate of one rank alone promises too much. Operands come from as far as they do in a
// step, in which everything else has been in the caches since they were last used. The experts' products have
// rates of their own (calibration.hpp), by shape and rows, of a rank alone: what the others at work
// take from it is a factor here.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/hf/config.hpp"

#include <array>
#include <string>

namespace moeloom {

/// What rates depend on beside the machine: sizes that decide how products, heads and routing run.
struct RateCase {
  Index hidden = 0;
  Index heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  Index sequence_length = 0;
  Index experts = 1, top_k = 1;
  Index inter = 0;  // of an expert
  Index vocabulary = 0;
  bool operator==(const RateCase&) const = default;
};
RateCase rate_case(const ModelConfig& config, Index sequence_length);

/// Rows of x at which dense products are measured.
inline constexpr std::array<Index, 4> kRateRows = {16, 64, 256, 1024};

/// Per second, of one rank.
struct MachineRates {
  std::array<double, kRateRows.size()> dense_flops{};  // forward and both gradients of [D, D]
  double attention_flops = 0;                          // both passes, softmax included
  double head_flops = 0;                               // of the loss, softmax included
  double router_tokens = 0;                            // a layer: products, choice and backward
  double plan_slots = 0;
  double elementwise_bytes = 0;  // read plus written
  double copy_bytes = 0;         // rows through a permutation, read plus written
  double updated_elements = 0;   // AdamW
  // Experts' seconds while all ranks compute theirs, in the mean, over those of a node's first rank alone;
  // measured of the grouped path, and taken for both; where a quota takes a rank its processor, by the wall,
  // as all rates are.
  double expert_slowdown = 1;
  Index ranks = 1;       // that measured together
  Index node_ranks = 1;  // of them on a node, at most
  // 0: there was no other rank to exchange with.
  double node_message_seconds = 0;
  double node_bytes_per_second = 0;
  double meeting_seconds = 0;
  double network_message_seconds = 0;
  double network_bytes_per_second = 0;  // of a node, as the slowest link lets it
  // Of one rank a host, both ways, in pairs of hosts; 0: fewer than three cannot tell whose link is slow.
  double link_median_bytes_per_second = 0;
  double link_slowest_bytes_per_second = 0;
  std::string slowest_host = {};
  bool network_tcp = false;  // it is TCP alone, which takes processors' time

  bool measured_node() const { return node_bytes_per_second > 0; }
  bool measured_network() const { return network_bytes_per_second > 0; }
  /// Whether one host holds up the exchanges of all.
  bool unequal_links() const { return link_slowest_bytes_per_second < 0.75 * link_median_bytes_per_second; }
};

/// Of a processor, what each of so many ranks has that share a quota's whole ones, of which there is always
/// one.
double due_share(double processors, Index ranks);

/// FLOP/s of dense products of so many rows: between the measured ones by the logarithm of rows, beyond them
/// as at the last.
double dense_flops_at(const MachineRates& rates, double rows);

/// Times each kind of work in turn, `budget_seconds` for all, and takes the slowest rank's; then exchanges
/// between the ranks of each node, and between nodes. Collective over `world`; 350 MiB at most.
MachineRates measure_machine_rates(const RateCase& sizes, const KernelTable& kernels,
                                   const Communicator& world, double budget_seconds);

}  // namespace moeloom
