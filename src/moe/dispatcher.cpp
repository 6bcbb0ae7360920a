#include "moeloom/moe/dispatcher.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <cstring>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

/// target row i = source row from(i).
template <typename From>
void gather_rows(ConstMatrixView source, MatrixView target, From from) {
  parallel_blocks(target.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::memcpy(target.row(i), source.row(from(i)), at(target.cols) * sizeof(float));
  });
}

/// target row to(i) = source row i.
template <typename To>
void scatter_rows(ConstMatrixView source, MatrixView target, To to) {
  parallel_blocks(source.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::memcpy(target.row(to(i)), source.row(i), at(source.cols) * sizeof(float));
  });
}

/// out = or += place[0] + place[1] + ..., the rows of one token in slot order.
void sum_slots(ConstMatrixView rows, std::span<const Index> places, float* out, Write mode) {
  for (Index j = 0; j < rows.cols; ++j) {
    float sum = rows(places[0], j);
    for (std::size_t k = 1; k < places.size(); ++k) sum += rows(places[k], j);
    out[j] = mode == Write::kAdd ? out[j] + sum : sum;
  }
}

ConstMatrixView as_column(std::span<const float> values) {
  return {values.data(), static_cast<Index>(values.size()), 1};
}

}  // namespace

Dispatcher::Dispatcher(const Communicator& ep, Index num_experts) : ep_(ep), num_experts_(num_experts) {}

void Dispatcher::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts_, ep_.size(), plan);
  const ExpertRange largest = experts_of(num_experts_, ep_.size(), 0);
  const ExpertRange mine = experts_of(num_experts_, ep_.size(), ep_.rank());
  // Equal blocks for MPI_Alltoall: ranks with one expert less pad theirs.
  std::vector<std::int64_t> sent(at(largest.count * ep_.size()));
  std::vector<std::int64_t> received(sent.size());
  for (Index rank = 0; rank < ep_.size(); ++rank) {
    const ExpertRange held = experts_of(num_experts_, ep_.size(), rank);
    std::copy_n(plan.tokens_per_expert.begin() + held.begin, held.count, sent.begin() + rank * largest.count);
  }
  ep_.all_to_all(sent, received);
  std::vector<std::int64_t> counts(at(mine.count * ep_.size()));
  for (Index rank = 0; rank < ep_.size(); ++rank)
    std::copy_n(received.begin() + rank * largest.count, mine.count, counts.begin() + rank * mine.count);
  plan_receiving(counts, plan);
}

void Dispatcher::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, Matrix& rows) {
  require(tokens.rows == plan.tokens, "dispatch needs the plan's tokens");
  const auto token_of = [&](Index place) { return plan.slot_order[at(place)] / plan.top_k; };
  rows.reshape_uninitialised(plan.rows(), tokens.cols);
  if (plan.ranks == 1) return gather_rows(tokens, rows, token_of);
  leaving_.reshape_uninitialised(plan.slots(), tokens.cols);
  arriving_.reshape_uninitialised(plan.rows(), tokens.cols);
  gather_rows(tokens, leaving_, token_of);
  ep_.all_to_all_rows(leaving_, plan.sent_per_rank, arriving_, plan.received_per_rank);
  gather_rows(arriving_, rows, [&](Index row) { return plan.landing_order[at(row)]; });
}

void Dispatcher::dispatch_scalars(const DispatchPlan& plan, std::span<const float> slots,
                                  std::vector<float>& rows) {
  require(static_cast<Index>(slots.size()) == plan.slots(), "dispatch_scalars needs one number a slot");
  Matrix leaving = Matrix::uninitialised(plan.slots(), 1);
  Matrix arriving = Matrix::uninitialised(plan.rows(), 1);
  gather_rows(as_column(slots), leaving, [&](Index place) { return plan.slot_order[at(place)]; });
  ep_.all_to_all_rows(leaving, plan.sent_per_rank, arriving, plan.received_per_rank);
  rows.resize(at(plan.rows()));
  for (Index row = 0; row < plan.rows(); ++row)
    rows[at(row)] = *arriving.row(plan.ranks == 1 ? row : plan.landing_order[at(row)]);
}

void Dispatcher::combine(const DispatchPlan& plan, ConstMatrixView rows, MatrixView tokens, Write mode) {
  require(rows.rows == plan.rows(), "combine needs the plan's rows");
  require(tokens.rows == plan.tokens && tokens.cols == rows.cols, "combine fills the plan's tokens");
  ConstMatrixView returned = rows;
  if (plan.ranks > 1) {
    arriving_.reshape_uninitialised(plan.rows(), rows.cols);
    leaving_.reshape_uninitialised(plan.slots(), rows.cols);
    scatter_rows(rows, arriving_, [&](Index row) { return plan.landing_order[at(row)]; });
    ep_.all_to_all_rows(arriving_, plan.received_per_rank, leaving_, plan.sent_per_rank);
    returned = leaving_;
  }
  parallel_blocks(plan.tokens, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t)
      sum_slots(returned, {plan.slot_place.data() + t * plan.top_k, at(plan.top_k)}, tokens.row(t), mode);
  });
}

void Dispatcher::combine_scalars(const DispatchPlan& plan, std::span<const float> rows,
                                 std::vector<float>& slots) {
  require(static_cast<Index>(rows.size()) == plan.rows(), "combine_scalars needs one number a row");
  Matrix arriving = Matrix::uninitialised(plan.rows(), 1);
  Matrix leaving = Matrix::uninitialised(plan.slots(), 1);
  for (Index row = 0; row < plan.rows(); ++row)
    *arriving.row(plan.ranks == 1 ? row : plan.landing_order[at(row)]) = rows[at(row)];
  ep_.all_to_all_rows(arriving, plan.received_per_rank, leaving, plan.sent_per_rank);
  slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot) slots[at(slot)] = *leaving.row(plan.slot_place[at(slot)]);
}

}  // namespace moeloom
