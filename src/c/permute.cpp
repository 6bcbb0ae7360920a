// Rows to the order of their experts and back, on one rank.
#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

constexpr Index kRowsPerTask = 32;

/// Of so many tokens, with room for a number each.
Index slots_of(Index tokens, Index top_k) {
  Index slots = 0, bytes = 0;
  check(top_k >= 1, [] { return "K must be at least 1"; });
  check(!__builtin_mul_overflow(tokens, top_k, &slots) &&
            !__builtin_mul_overflow(slots, Index{sizeof(Index)}, &bytes),
        [&] { return "K = " + std::to_string(top_k) + " gives more slots than memory can hold"; });
  return slots;
}

/// Slots by row, checked.
std::vector<Index> order_of(const ml_array* order, Index slots) {
  std::vector<Index> each = integers_of(check_array(order, "order", {kAny}), "order");
  check(std::ranges::all_of(each, [&](Index slot) { return slot >= 0 && slot < slots; }),
        [&] { return "order has a slot outside of the " + std::to_string(slots) + " of topk_idx"; });
  return each;
}

/// Rows by slot; -1: the slot has none. A slot is of one row.
std::vector<Index> places_of(const std::vector<Index>& order, Index slots) {
  std::vector<Index> places(at(slots), -1);
  for (Index row = 0; row < std::ssize(order); ++row)
    check(std::exchange(places[at(order[at(row)])], row) < 0,
          [&] { return "order has slot " + std::to_string(order[at(row)]) + " twice"; });
  return places;
}

void plan(const ml_array* topk_idx, Index num_experts, const ml_array* order, const ml_array* counts,
          Index& rows) {
  check_array(topk_idx, "topk_idx", {kAny, kAny});
  check(num_experts >= 0, [] { return "num_experts must not be negative"; });
  const Index slots = topk_idx->shape[0] * topk_idx->shape[1];
  check_array(order, "order", {slots});
  check_array(counts, "counts", {num_experts});
  DispatchPlan sending;
  plan_sending(chosen_of(*topk_idx, num_experts), topk_idx->shape[1], num_experts, 1, sending);
  write_integers(sending.slot_order, *order, "order");
  write_integers(sending.tokens_per_expert, *counts, "counts");
  rows = sending.places();
}

/// Whole rows are copied, whatever they hold.
void permute(const ml_array* x, const ml_array* order, Index top_k, const ml_array* rows) {
  check_array(x, "x", {kAny, kAny});
  const std::vector<Index> slots = order_of(order, slots_of(x->shape[0], top_k));
  check_array(rows, "rows", {std::ssize(slots), x->shape[1]});
  check_apart(*rows, "rows");
  if (rows->dtype != x->dtype) refuse_type(*rows, "rows", "of x's dtype");
  const std::size_t bytes = at(x->shape[1] * bytes_of_element(*x));
  if (bytes == 0) return;  // and neither may have memory
  parallel_blocks(std::ssize(slots), kRowsPerTask, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      std::memcpy(row_at(*rows, row), row_at(*x, slots[at(row)] / top_k), bytes);
  });
}

/// [T*K], or ones.
class SlotWeights {
 public:
  SlotWeights(const ml_array* weights, Index tokens, Index top_k) {
    if (weights != nullptr)
      given_.emplace(check_array(weights, "topk_weights", {tokens, top_k}), "topk_weights", InPlace::kFlat);
  }
  float of(Index slot) const { return given_ ? given_->flat()[at(slot)] : 1.0f; }

 private:
  std::optional<RowsIn> given_;
};

void unpermute(const ml_array* rows, const ml_array* order, const ml_array* topk_weights, Index top_k,
               const ml_array* y) {
  check_array(y, "y", {kAny, kAny});
  const Index tokens = y->shape[0], cols = y->shape[1], slot_count = slots_of(tokens, top_k);
  const std::vector<Index> slots = order_of(order, slot_count);
  check_array(rows, "rows", {std::ssize(slots), cols});
  const std::vector<Index> places = places_of(slots, slot_count);
  const SlotWeights weights(topk_weights, tokens, top_k);
  const RowsIn from(*rows, "rows");
  const RowsOut to(*y, "y");
  const ConstMatrixView source = from.fp32();
  const MatrixView target = to.fp32();
  parallel_blocks(tokens, kRowsPerTask, [&](Index begin, Index end) {
    for (Index token = begin; token < end; ++token) {
      float* const sum = target.row(token);
      std::fill_n(sum, cols, 0.0f);
      for (Index slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
        if (places[at(slot)] < 0) continue;
        const float* const row = source.row(places[at(slot)]);
        const float weight = weights.of(slot);
        for (Index j = 0; j < cols; ++j) sum[j] += weight * row[j];
      }
    }
  });
  to.store();
}

void unpermute_backward(const ml_array* dy, const ml_array* rows, const ml_array* order,
                        const ml_array* topk_weights, const ml_array* d_rows,
                        const ml_array* d_topk_weights) {
  check_array(dy, "dy", {kAny, kAny});
  check_array(topk_weights, "topk_weights", {dy->shape[0], kAny});
  const Index tokens = dy->shape[0], cols = dy->shape[1], top_k = topk_weights->shape[1];
  const std::vector<Index> slots = order_of(order, tokens * top_k);
  places_of(slots, tokens * top_k);  // refuses a slot that would be written twice
  check_array(rows, "rows", {std::ssize(slots), cols});
  check_array(d_topk_weights, "d_topk_weights", {tokens, top_k});
  const SlotWeights weights(topk_weights, tokens, top_k);
  const RowsIn d_tokens(*dy, "dy"), from(*rows, "rows");
  const RowsOut d_from(check_array(d_rows, "d_rows", shape_of(*rows)), "d_rows");
  KeptFloats d_weights(tokens, top_k);
  const MatrixView d_each = d_weights.view(), d_out = d_from.fp32();
  const ConstMatrixView d_in = d_tokens.fp32(), in = from.fp32();
  fill(d_each, 0);
  parallel_blocks(std::ssize(slots), kRowsPerTask, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index slot = slots[at(row)];
      const float* const d_token = d_in.row(slot / top_k);
      float* const d_row = d_out.row(row);
      const float weight = weights.of(slot);
      for (Index j = 0; j < cols; ++j) d_row[j] = weight * d_token[j];
      d_each.data[slot] = static_cast<float>(ordered_dot(d_token, in.row(row), cols));
    }
  });
  d_from.store();
  write_floats(d_each, *d_topk_weights, "d_topk_weights");
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_permute_plan(const ml_array* topk_idx, int64_t num_experts, const ml_array* order,
                          const ml_array* counts, int64_t* rows) {
  return guarded([&] { plan(topk_idx, num_experts, order, counts, given(rows, "rows")); });
}

ml_status ml_permute(const ml_array* x, const ml_array* order, int64_t top_k, const ml_array* rows) {
  return guarded([&] { permute(x, order, top_k, rows); });
}

ml_status ml_unpermute(const ml_array* rows, const ml_array* order, const ml_array* topk_weights,
                       int64_t top_k, const ml_array* y) {
  return guarded([&] { unpermute(rows, order, topk_weights, top_k, y); });
}

ml_status ml_unpermute_grad(const ml_array* dy, const ml_array* rows, const ml_array* order,
                            const ml_array* topk_weights, const ml_array* d_rows,
                            const ml_array* d_topk_weights) {
  return guarded([&] { unpermute_backward(dy, rows, order, topk_weights, d_rows, d_topk_weights); });
}
