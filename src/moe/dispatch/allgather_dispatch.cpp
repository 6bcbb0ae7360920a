#include "moeloom/moe/dispatch/allgather_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;
constexpr Index kFloatBytes = sizeof(float);

/// Token of each slot, as the bits of a number that travels beside its row.
std::vector<float> token_of_slots(const DispatchPlan& plan) {
  std::vector<float> tokens(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot)
    tokens[at(slot)] = std::bit_cast<float>(static_cast<std::int32_t>(slot / plan.top_k));
  return tokens;
}

/// token_of_rows [R], each among its source's -> among those of all ranks.
std::vector<Index> gathered_order(const DispatchPlan& plan, std::span<const Index> tokens_per_rank,
                                  std::span<const float> token_of_rows) {
  std::vector<Index> first(tokens_per_rank.size());
  std::exclusive_scan(tokens_per_rank.begin(), tokens_per_rank.end(), first.begin(), Index{0});
  std::vector<Index> order;
  order.reserve(token_of_rows.size());
  for (std::size_t group = 0; group < plan.rows_per_source.size(); ++group)
    for (Index i = 0; i < plan.rows_per_source[group]; ++i)
      order.push_back(first[group % first.size()] + std::bit_cast<std::int32_t>(token_of_rows[order.size()]));
  return order;
}

}  // namespace

AllgatherDispatch::AllgatherDispatch(const Communicator& ep, Index num_experts, NodeMap nodes, WireDType wire)
    : ep_(&ep),
      num_experts_(num_experts),
      nodes_(nodes),
      wire_(wire),
      back_(ep, num_experts, std::move(nodes), wire) {}

void AllgatherDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_arrivals(*ep_, num_experts_, topk_idx, top_k, plan);
  AllgatherPlan& own = make_own<AllgatherPlan>(plan);
  own.tokens_per_rank = ep_->all_gather(std::span<const std::int64_t>(&plan.tokens, 1));
  std::vector<float> token_of_rows;
  const std::vector<float> tokens = token_of_slots(plan);
  back_.send_scalars(plan, {tokens, token_of_rows});
  network_bytes_ += sum_off_node(nodes_, ep_->rank(), plan.sent_per_rank) * kFloatBytes;
  own.gathered_order = gathered_order(plan, own.tokens_per_rank, token_of_rows);
}

void AllgatherDispatch::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                                 std::optional<ScalarsOut> scalars) {
  const auto& [tokens_per_rank, gathered_order] = own_of<AllgatherPlan>(plan, "allgather");
  if (plan.ranks == 1) return back_.dispatch(plan, tokens, rows, scalars);
  const Index cols = tokens.cols;
  const Index packed = wire_cols(cols, wire_);
  const auto mine = tokens_per_rank.begin() + ep_->rank();
  const Index first = std::reduce(tokens_per_rank.begin(), mine);
  gathered_.reshape_uninitialised(std::reduce(mine, tokens_per_rank.end(), first), packed);
  parallel_blocks(tokens.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) to_wire(tokens.row(t), cols, wire_, gathered_.row(first + t));
  });
  std::vector<Index> floats_per_rank = tokens_per_rank;
  for (Index& floats : floats_per_rank) floats *= packed;
  ep_->all_gather_stretches(gathered_.view().flat(), floats_per_rank);
  count(plan, cols, scalars.has_value());
  rows.reshape_uninitialised(plan.rows(), cols);
  parallel_blocks(plan.rows(), kRowsPerTask, [&, &order = gathered_order](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      from_wire(gathered_.row(order[at(row)]), cols, wire_, rows.view().row(row));
  });
  if (scalars) back_.send_scalars(plan, *scalars);
}

void AllgatherDispatch::count(const DispatchPlan& plan, Index cols, bool with_scalars) {
  const Index rows = sum_off_node(nodes_, ep_->rank(), plan.sent_per_rank);
  const std::vector<Index> to_each(at(plan.ranks), plan.tokens);
  const Index tokens = sum_off_node(nodes_, ep_->rank(), to_each);
  network_bytes_ += (tokens * wire_cols(cols, wire_) + (with_scalars ? rows : 0)) * kFloatBytes;
}

}  // namespace moeloom
