// Dispatch: rows out to the ranks that hold their experts, and back again.
//
// A plan is made once a layer from counts alone; dispatch and combine then move rows by the same plan in
// opposite directions, so each is the other's backward (as in DeepEP). How rows travel is a choice
// (dispatcher_choice.hpp) that changes no bit: they land in one order, and a token's sum has one. Only
// CombineMode::kFast and rows rounded on the wire change bits, and both are asked for.
#pragma once

#include "moeloom/moe/dispatch/allgather_dispatch.hpp"
#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"
#include "moeloom/moe/dispatch/dispatcher_kind.hpp"
#include "moeloom/moe/dispatch/hierarchical_dispatch.hpp"
#include "moeloom/moe/dispatch/overlapped_dispatch.hpp"
#include "moeloom/moe/dispatch/shared_dispatch.hpp"

#include <variant>

namespace moeloom {

/// Of the ranks of one ep row; all of them give the same.
struct DispatcherSettings {
  DispatcherKind kind = DispatcherKind::kAlltoall;
  std::shared_ptr<NodeMemory> memory = nullptr;  // kShared: of the ranks of ep; kHierarchical: of this node's
  NodeMap nodes = {};                            // of the ranks of ep; kHierarchical needs them
  WireSettings wire = {};
  bool node_pool = false;  // the experts lie in `memory` too, and its ranks run each other's tasks
  Index chunks = 0;  // of kAlltoall alone: rows travel in so many while experts compute; 0: whole, before
};

/// What a kind needs beside its name. Collective over `ep`; throws AgreedError on every rank if one cannot
/// open another's memory.
DispatcherSettings open_dispatcher(DispatcherKind kind, const Communicator& ep, Index num_experts,
                                   const WireSettings& wire = {});

/// plan(), dispatch() and combine() are collective over ep: all ranks call it, also with no token.
class Dispatcher {
 public:
  /// `ep` must outlive it. Collective over nothing. Throws ShapeError for kShared and kHierarchical
  /// without what they need, and for chunks of other kinds than kAlltoall.
  Dispatcher(const Communicator& ep, Index num_experts, const DispatcherSettings& settings = {});

  DispatcherKind kind() const;
  DispatchTraffic traffic() const;

  /// topk_idx [T, K]. Counts travel first: no row can move before its receiver knows how many come.
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// Makes `rows` [count, cols] where combine can fetch from; contents unspecified. What combine is given is
  /// made here, and may be written again from the next dispatch() or plan() on.
  void prepare(RowBuffer& rows, Index count, Index cols);

  /// tokens [T, D] -> rows [R, D], each token once a slot, grouped by local expert; scalars beside them.
  /// Throws ShapeError, MpiError.
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars = std::nullopt);
  /// rows [R, D] -> tokens [T, D]: the sum of a token's K rows in slot order, written or added.
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars = std::nullopt);

  /// A dispatch and a combine in parts, between which the caller computes: begin, then of each chunk in order
  /// await and send_back, then finish. All four are collective over ep, and arrived is over nothing. Of ways
  /// that move rows whole there is one chunk, begin is the dispatch, and finish the combine. Throws as those
  /// do.
  bool overlaps() const { return std::holds_alternative<OverlappedDispatch>(way_); }
  Index chunks() const;
  void begin(const RoundTrip& trip);
  /// Whether await(chunk) would not have to wait.
  bool arrived(Index chunk);
  /// trip.rows of the experts of `chunk` have landed.
  void await(const RoundTrip& trip, Index chunk);
  /// trip.results of those experts leave; they may not be written any more.
  void send_back(const RoundTrip& trip, Index chunk);
  void finish(const RoundTrip& trip);
  /// To be done now and then by the thread that calls the others, so that rows travel while it computes.
  Interlude progress() const;

 private:
  std::variant<AlltoallDispatch, SharedDispatch, HierarchicalDispatch, AllgatherDispatch, OverlappedDispatch>
      way_;
};

}  // namespace moeloom
