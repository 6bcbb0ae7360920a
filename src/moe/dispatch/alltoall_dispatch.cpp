#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <cstring>

#include "dispatch/count_exchange.hpp"
#include "dispatch/slot_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;
constexpr Index kFloatBytes = sizeof(float);

/// For each row, copy(source row from(i), target row i).
template <typename From, typename Copy>
void gather_rows(ConstMatrixView source, MatrixView target, From from, Copy copy) {
  parallel_blocks(target.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) copy(source.row(from(i)), target.row(i));
  });
}

/// For each row, copy(source row i, target row to(i)).
template <typename To, typename Copy>
void scatter_rows(ConstMatrixView source, MatrixView target, To to, Copy copy) {
  parallel_blocks(source.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) copy(source.row(i), target.row(to(i)));
  });
}

auto plain_copy(Index cols) {
  return [cols](const float* from, float* to) { std::memcpy(to, from, at(cols) * sizeof(float)); };
}
auto narrowing_copy(Index cols, WireDType wire) {
  return [cols, wire](const float* row, float* packed) { to_wire(row, cols, wire, packed); };
}
auto widening_copy(Index cols, WireDType wire) {
  return [cols, wire](const float* packed, float* row) { from_wire(packed, cols, wire, row); };
}

/// A plan of rows that land where they are written has no order of arrival.
void check_arrivals(const DispatchPlan& plan) {
  require(plan.ranks == 1 || std::ssize(plan.landing_order) == plan.rows(),
          "the alltoall dispatcher needs a plan of its own");
}

ConstMatrixView as_column(std::span<const float> values) {
  return {values.data(), static_cast<Index>(values.size()), 1};
}

/// The place among what has arrived that lands at a row.
Index arrival_of(const DispatchPlan& plan, Index row) {
  return plan.ranks == 1 ? row : plan.landing_order[at(row)];
}

}  // namespace

void plan_arrivals(const Communicator& ep, Index num_experts, std::span<const std::int32_t> topk_idx,
                   Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts, ep.size(), plan);
  plan_receiving(exchange_counts(ep, plan.tokens_per_expert, plan.sent_per_rank).of_experts, plan);
}

AlltoallDispatch::AlltoallDispatch(const Communicator& ep, Index num_experts, NodeMap nodes, WireDType wire)
    : ep_(&ep), num_experts_(num_experts), nodes_(std::move(nodes)), wire_(wire) {}

void AlltoallDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_arrivals(*ep_, num_experts_, topk_idx, top_k, plan);
  make_own<std::monostate>(plan);
}

void AlltoallDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
                            DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, counts.experts, counts.ranks, plan);
  plan_receiving(landing_counts(counts, ep_->rank()).received, plan);
  make_own<std::monostate>(plan);
}

void AlltoallDispatch::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                                std::optional<ScalarsOut> scalars) {
  check_arrivals(plan);
  const auto token_of = [&](Index place) { return plan.slot_order[at(place)] / plan.top_k; };
  const Index cols = tokens.cols;
  rows.reshape_uninitialised(plan.rows(), cols);
  if (plan.ranks == 1) {
    gather_rows(tokens, rows, token_of, plain_copy(cols));
  } else {
    leaving_.reshape_uninitialised(plan.places(), wire_cols(cols, wire_));
    arriving_.reshape_uninitialised(plan.rows(), wire_cols(cols, wire_));
    gather_rows(tokens, leaving_, token_of, narrowing_copy(cols, wire_));
    ep_->all_to_all_rows(leaving_, plan.sent_per_rank, arriving_, plan.received_per_rank);
    count(plan.sent_per_rank, cols, scalars.has_value());
    gather_rows(
        arriving_, rows, [&](Index row) { return plan.landing_order[at(row)]; }, widening_copy(cols, wire_));
  }
  if (scalars) send_scalars(plan, *scalars);
}

void AlltoallDispatch::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
                               std::optional<ScalarsBack> scalars) {
  check_arrivals(plan);
  const Index cols = rows.cols();
  if (plan.ranks == 1) {
    sum_slots(plan, rows, tokens, mode);
  } else {
    arriving_.reshape_uninitialised(plan.rows(), wire_cols(cols, wire_));
    leaving_.reshape_uninitialised(plan.places(), wire_cols(cols, wire_));
    scatter_rows(
        rows, arriving_, [&](Index row) { return plan.landing_order[at(row)]; }, narrowing_copy(cols, wire_));
    ep_->all_to_all_rows(arriving_, plan.received_per_rank, leaving_, plan.sent_per_rank);
    count(plan.received_per_rank, cols, scalars.has_value());
    sum_returned(plan, cols, tokens, mode);
  }
  if (scalars) return_scalars(plan, *scalars);
}

void AlltoallDispatch::count(std::span<const Index> rows_per_rank, Index cols, bool with_scalars) {
  const Index rows = sum_off_node(nodes_, ep_->rank(), rows_per_rank);
  network_bytes_ += rows * (wire_cols(cols, wire_) + (with_scalars ? 1 : 0)) * kFloatBytes;
}

void AlltoallDispatch::sum_returned(const DispatchPlan& plan, Index cols, MatrixView tokens, Write mode) {
  if (wire_ == WireDType::kFp32) return sum_slots(plan, leaving_, tokens, mode);
  returned_.reshape_uninitialised(plan.places(), cols);
  gather_rows(
      leaving_, returned_, [](Index place) { return place; }, widening_copy(cols, wire_));
  sum_slots(plan, returned_, tokens, mode);
}

void AlltoallDispatch::send_scalars(const DispatchPlan& plan, ScalarsOut scalars) {
  leaving_scalars_.reshape_uninitialised(plan.places(), 1);
  arriving_scalars_.reshape_uninitialised(plan.rows(), 1);
  gather_rows(
      as_column(scalars.slots), leaving_scalars_, [&](Index place) { return plan.slot_order[at(place)]; },
      plain_copy(1));
  ep_->all_to_all_rows(leaving_scalars_, plan.sent_per_rank, arriving_scalars_, plan.received_per_rank);
  scalars.rows.resize(at(plan.rows()));
  for (Index row = 0; row < plan.rows(); ++row)
    scalars.rows[at(row)] = *arriving_scalars_.row(arrival_of(plan, row));
}

void AlltoallDispatch::return_scalars(const DispatchPlan& plan, ScalarsBack scalars) {
  arriving_scalars_.reshape_uninitialised(plan.rows(), 1);
  leaving_scalars_.reshape_uninitialised(plan.places(), 1);
  for (Index row = 0; row < plan.rows(); ++row)
    *arriving_scalars_.row(arrival_of(plan, row)) = scalars.rows[at(row)];
  ep_->all_to_all_rows(arriving_scalars_, plan.received_per_rank, leaving_scalars_, plan.sent_per_rank);
  scalars.slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot)
    scalars.slots[at(slot)] = plan.leaves(slot) ? *leaving_scalars_.row(plan.slot_place[at(slot)]) : 0;
}

}  // namespace moeloom
