// What one exchange of rows along ep costs, by the way they travel: bytes by link, messages, bytes that local
// passes move, and from these seconds. Arithmetic alone, for even routing.
//
// One direction of one layer is costed. Each direction's backward is the other, so a layer has two of both a
// micro-batch; the two differ where what goes out once for several experts comes back from each of them.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/job/dispatcher_kind.hpp"

namespace moeloom {

/// One micro-batch's rows of one rank, and where the ranks of its ep row lie.
struct ExchangeCase {
  Index tokens = 0;
  Index hidden = 0;
  Index top_k = 1;
  Index num_experts = 1;
  Index ep = 1;
  Index ep_on_node = 1;  // ranks of the ep row on each of its nodes; divides ep
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;  // of rows that MPI carries
};

/// Of one rank in one direction.
struct ExchangeVolume {
  double node_bytes = 0;        // to other ranks of its node, through MPI
  double network_bytes = 0;     // to ranks of other nodes
  double node_messages = 0;     // each is work of the processors
  double network_messages = 0;  // that wait for each other: those under way together are one
  double copied_bytes = 0;      // read and written by the rank itself
  double meetings = 0;          // of the ranks of a node
};

/// The expected number of groups, of `groups` equal ones, that top_k of num_experts experts drawn at random
/// visit: G (1 - C(E - E/G, k) / C(E, k)).
double groups_visited(Index num_experts, Index top_k, Index groups);

/// Rows that one token sends to other nodes if each node it visits gets it once: D(N) (N-1)/N, with
/// D(N) = groups_visited(E, K, N).
double crossings_out(Index num_experts, Index top_k, Index nodes);
/// Rows that come back for it. fast: as many. exact: one a slot, but the i slots that open its sum return as
/// one where they lie on one other node: (N-1)/N (K - sum over i = 2..K of P(i)), where
/// P(i) = C(E/N, i) / C(E, i) * N is the probability that the first i slots lie on one node.
double crossings_back(Index num_experts, Index top_k, Index nodes, CombineMode mode);

/// With T tokens of B = 4 D bytes (2 D rounded up to whole floats where the wire is bf16 and MPI carries
/// them), K experts a token, R = ep, n = ep_on_node, N = R / n nodes, and X rows out and Y rows back of a
/// token as above:
///   alltoall      K T B (R-1)/R either way, of it K T B (n-1)/R inside the node, a message to each rank;
///                 packing and regrouping or summing read and write K T B twice
///   shared        K T B written and T B read, or the reverse; n = R; one meeting before, and one after
///   hierarchical  X T B out, Y T B back over the network in N-1 messages at once, written to leave and read
///                 on arrival; inside the node as shared: D(N) T B read and K T B written, or K T B and T B
/// All messages between nodes are under way together, and so count as one.
ExchangeVolume dispatch_volume(DispatcherKind kind, const ExchangeCase& exchange);
ExchangeVolume combine_volume(DispatcherKind kind, const ExchangeCase& exchange);

/// Sent before the rows, so that all know where they land:
///   alltoall      counts, 8 ceil(E/R) to each of R - 1 ranks
///   shared        nothing: counts lie in the node's memory
///   hierarchical  on one node as shared; else as alltoall, and a count of
///                 copies to each; where rows begin, 8 ceil(E/R) to each; where
///                 each copy lands, 8 K T (N-1)/N
double planning_bytes(DispatcherKind kind, const ExchangeCase& exchange);
/// A number beside each row of a slot, either way: 4 K T (R-1)/R, of hierarchical 4 K T (N-1)/N, of shared
/// nothing.
double scalar_bytes(DispatcherKind kind, const ExchangeCase& exchange);

/// What carries rows. Bandwidths are bytes a second.
struct ExchangeRates {
  double node_message_seconds = 0;
  double node_bandwidth = 0;  // of one rank, while all of the node exchange
  double network_message_seconds = 0;
  double network_bandwidth = 0;  // of a node, shared by its ranks
  double copy_bandwidth = 0;     // of one rank, read plus written
  double meeting_seconds = 0;
};

/// seconds = messages * latency + node bytes / node bandwidth + network bytes * sharers / network bandwidth +
/// copied bytes / copy bandwidth + meetings * meeting. `sharers`: ranks of a node that exchange at once.
double exchange_seconds(const ExchangeVolume& volume, const ExchangeRates& rates, Index sharers);

}  // namespace moeloom
