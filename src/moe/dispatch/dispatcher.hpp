// Dispatch: rows out to the ranks that hold their experts, and back again.
//
// A plan is made once a layer from counts alone; rows then go out and come back by the same plan, so each
// direction is the other's backward (as in DeepEP). How rows travel is a choice
// (dispatcher_kind.hpp) that changes no bit: they land in one order, and a token's sum has one. Only
// CombineMode::kFast and rows rounded on the wire change bits, and both are asked for.
#pragma once

#include "moe/dispatch/alltoall_dispatch.hpp"
#include "moe/dispatch/dispatch_traffic.hpp"
#include "moe/dispatch/hierarchical_dispatch.hpp"
#include "moeloom/job/dispatcher_kind.hpp"

#include <variant>

namespace moeloom {

/// How rows cross between ranks that share no memory.
struct WireSettings {
  CombineMode combine = CombineMode::kExact;  // kFast: of hierarchical; others sum at home
  WireDType dtype = WireDType::kFp32;         // of all but shared, where nothing travels
  Index pretended_nodes = 0;                  // find_nodes()'s
};

/// Of the ranks of one ep row; all of them give the same.
struct DispatcherSettings {
  DispatcherKind kind = DispatcherKind::kAlltoall;
  std::shared_ptr<NodeMemory> memory = nullptr;  // kShared: of the ranks of ep; kHierarchical: of this node's
  NodeMap nodes = {};                            // of the ranks of ep; kAlltoall only counts by them
  WireSettings wire = {};
  Index chunks = 0;  // rows travel in so many while experts compute; 0: whole, experts wait
  // Experts get replicas where counts and these say that it pays. The bits stay where rows are summed and
  // rounded at one place alone: not with CombineMode::kFast, nor with bf16 rows of kHierarchical.
  std::optional<RebalanceRates> rebalance = {};

  /// Where ranks of a node read each other's experts, whose weights and gradients should lie there; null:
  /// nobody does.
  std::shared_ptr<NodeMemory> weights_memory() const { return rebalance ? memory : nullptr; }
};

/// What a kind needs beside its name. Collective over `ep`; throws AgreedError on every rank if one cannot
/// open another's memory.
DispatcherSettings open_dispatcher(DispatcherKind kind, const Communicator& ep, Index num_experts,
                                   const WireSettings& wire = {});

/// Within a node rows are read where they lie (kShared), unless the system forbids ranks to share memory;
/// else kAlltoall. Collective over `ep`.
DispatcherSettings open_usual_dispatcher(const Communicator& ep, Index num_experts);

/// plan() and a trip are collective over ep: all ranks take part, also with no token. A trip is begin, then
/// of each chunk in order await, unless it only comes home, and send_back, unless it only goes out, then
/// finish; between them the caller computes. Rows that travel whole are one chunk.
class Dispatcher {
 public:
  /// `ep` must outlive it. Collective over nothing. Throws ShapeError for kShared and kHierarchical
  /// without what they need.
  Dispatcher(const Communicator& ep, Index num_experts, const DispatcherSettings& settings = {});

  DispatcherKind kind() const { return kind_; }
  const Communicator& ep() const { return *ep_; }
  DispatchTraffic traffic() const;
  /// Whether plans may have replicas.
  bool rebalances() const { return rebalance_.has_value(); }

  /// topk_idx [T, K]. Counts travel first: no row can move before its receiver knows how many come.
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// Of every plan, the same on all ranks.
  Index chunks() const;

  /// trip.tokens leave, if it goes out; trip.results is made [R, D], contents unspecified, and may be written
  /// until its chunk is sent back. Throws ShapeError, MpiError, as the others do.
  void begin(const RoundTrip& trip);
  /// The ranks whose rows for every expert are in place before those of others, as those of this node;
  /// consecutive, and none where all come together.
  Stretch near_ranks() const;
  /// Their rows of trip.rows have landed.
  void await_near(const RoundTrip& trip);
  /// Whether await(chunk) would not have to wait. Collective over nothing.
  bool arrived(Index chunk);
  /// trip.rows of the experts of `chunk` have landed.
  void await(const RoundTrip& trip, Index chunk);
  /// trip.results of those experts leave, chunk after chunk; they may not be written any more before the next
  /// plan() or begin().
  void send_back(const RoundTrip& trip, Index chunk);
  /// The same of all chunks.
  void await_all(const RoundTrip& trip);
  void send_all_back(const RoundTrip& trip);
  /// trip.sums are there; of a trip that does not come home, which no chunk is sent back of, its rows. Throws
  /// ShapeError where a chunk was not sent back: others would wait for it.
  void finish(const RoundTrip& trip);
  /// To be done now and then by the thread that calls the others, so that rows travel while it computes.
  Interlude progress() const;
  /// Of rows under way: packed to leave, and as they arrived.
  static double bytes_of(const TripShape& trip);

 private:
  using Way = std::variant<AlltoallDispatch, HierarchicalDispatch>;
  void plan_with_replicas(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  static Way make_way(const Communicator& ep, Index num_experts, const DispatcherSettings& settings);

  const Communicator* ep_;
  DispatcherKind kind_;
  Index num_experts_;
  bool whole_;
  std::optional<RebalanceRates> rebalance_;
  std::vector<Index> node_of_;        // [ep]; empty: one node
  std::vector<std::int32_t> served_;  // [N], choices as served numbers
  Way way_;
  std::int64_t row_bytes_ = 0;
  Index sent_back_ = 0;  // chunks, of the trip under way
};

}  // namespace moeloom
