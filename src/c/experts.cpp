// A layer's experts for a caller that has weights, router and optimizer of its own.
#include "experts.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <optional>
#include <string>

#include "borrowed_rows.hpp"
#include "glu.hpp"
#include "shard.hpp"

namespace moeloom::c {
namespace {

/// Collective over the group in the first call with so many tokens.
Way& way_for(Experts& experts, const LayerSizes& sizes) {
  Experts::Chosen& chosen = experts.ways[std::bit_width(at(sizes.tokens))];
  if (chosen.way == nullptr) {
    Group& group = *experts.group;
    const WayRequest& request = experts.request;
    const WayChoice choice = choose_way(group.row_facts(request.pretended_nodes), request, sizes);
    chosen = {&group.way({request.num_experts, choice.kind, choice.chunks, request.pretended_nodes}),
              choice.reason};
  }
  experts.reason = chosen.reason;
  return *chosen.way;
}

KernelTable kernels_of(bool in_bf16) {
  KernelTable kernels;
  kernels.swiglu = fused_swiglu();
  kernels.grouped_matmul = in_bf16 ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
  kernels.grouped_matmul.uses_packed = false;  // the caller's weights may change between any two calls
  return kernels;
}

MoeContext context_of(Group& group, Way& way, const KernelTable& kernels, Write gradients) {
  return {.kernels = kernels,
          .dispatcher = way.dispatcher,
          .experts = way.runner,
          .workspace = group.workspace(),
          .clock = group.clock(),
          .tokens = {.world = &group.ranks(), .training = true},
          .expert_gradients = gradients};
}

std::unique_ptr<TripMemory> forward(Experts& experts, const ml_expert_weights* weights, const ml_array* x,
                                    const ml_array* topk_idx, const ml_array* topk_weights,
                                    const ml_array* y) {
  Group& group = *experts.group;
  std::unique_ptr<TripMemory> trip = group.take_trip();
  std::optional<RowsIn> tokens;
  std::optional<RowsOut> results;
  LayerSizes sizes;
  Call call = experts.forward;
  in_agreement(group, call, [&] {
    const Shard shard(experts.held.count, experts.activation, weights);
    trip->width = shard.hidden();
    trip->inter = shard.intermediate();
    trip->tokens = check_array(x, "x", {kAny, trip->width}).shape[0];
    trip->top_k = check_array(topk_idx, "topk_idx", {trip->tokens, kAny}).shape[1];
    check(trip->top_k >= 1, [] { return "topk_idx has no columns"; });
    trip->topk_idx = chosen_of(*topk_idx, experts.num_experts);
    const RowsIn slots(check_array(topk_weights, "topk_weights", {trip->tokens, trip->top_k}), "topk_weights",
                       InPlace::kFlat);
    trip->topk_weights.assign(slots.flat().begin(), slots.flat().end());
    trip->in_bf16 = shard.is_bf16() && x->dtype == ML_BF16 && cpu_has_bf16();
    trip->num_experts = experts.num_experts;
    sizes = {trip->width, shard.intermediate(), trip->top_k, trip->tokens};
    call.numbers = {sizes.top_k, sizes.tokens};
    call.of = ", D = " + std::to_string(sizes.hidden) + ", F = " + std::to_string(sizes.intermediate);
    trip->experts.show(shard.shard(), experts.layer);
    tokens.emplace(*x, "x");
    results.emplace(check_array(y, "y", shape_of(*x)), "y");
  });
  trip->number = group.next_number();
  if (group.ranks().size() > 1) {
    const auto [top_k, tokens_of_any] = group.door().largest();
    sizes.top_k = top_k;
    sizes.tokens = tokens_of_any;
  }
  behind_door(group, call, [&] {
    trip->way = &way_for(experts, sizes);
    const KernelTable kernels = kernels_of(trip->in_bf16);
    const MatrixView sums = of_width(results->fp32(), trip->width);
    fill(sums, 0);  // to which a token's rows are added
    trip->experts.forward(context_of(group, *trip->way, kernels, Write::kReplace),
                          of_width(tokens->fp32(), trip->width), trip->chosen(), sums);
    results->store();
  });
  return trip;
}

void backward(Experts& experts, const ml_expert_weights* weights, ml_trip* trip_handle, const ml_array* dy,
              const ml_array* dx, const ml_array* d_topk_weights, const ml_expert_grads* grads) {
  Group& group = *experts.group;
  std::optional<RowsIn> d_output;
  std::optional<RowsOut> d_tokens;
  std::optional<KeptFloats> unasked;
  Write mode = Write::kReplace;
  Call call = experts.backward;
  in_agreement(group, call, [&] {
    const ml_trip& of = given(trip_handle, "trip");
    const std::unique_ptr<TripMemory>& held = of.memory;
    check(!of.plan, [] { return "the trip is of ml_dispatch_plan(), which has no backward of experts"; });
    if (!held)
      throw Refusal(ML_SPENT,
                    "a second backward of one forward: the first one used up what the forward had kept; "
                    "call forward again");
    check(held->num_experts == experts.num_experts && group.owns(*held->way),
          [] { return "the trip is of other experts"; });
    call.of = " of forward " + std::to_string(held->number);
    Shard shard(experts.held.count, experts.activation, weights);
    check(shard.hidden() == held->width && shard.intermediate() == held->inter,
          [] { return "the weights have another D or F than in the forward"; });
    mode = shard.train(grads);
    held->experts.show(shard.shard(), experts.layer);
    d_output.emplace(check_array(dy, "dy", {held->tokens, held->width}), "dy");
    if (dx != nullptr)
      d_tokens.emplace(check_array(dx, "dx", {held->tokens, held->width}), "dx");
    else
      unasked.emplace(held->tokens, held->width);
    if (d_topk_weights != nullptr)
      check_written(check_array(d_topk_weights, "d_topk_weights", {held->tokens, held->top_k}),
                    "d_topk_weights");
  });
  std::unique_ptr<TripMemory> trip = std::move(trip_handle->memory);  // spent, even where what follows fails
  behind_door(group, call, [&] {
    const KernelTable kernels = kernels_of(trip->in_bf16);
    const MatrixView sums = of_width(d_tokens ? d_tokens->fp32() : unasked->view(), trip->width);
    const std::span<const float> d_weights =
        trip->experts.backward(context_of(group, *trip->way, kernels, mode), {}, trip->chosen(),
                               of_width(d_output->fp32(), trip->width), sums);
    if (d_tokens) d_tokens->store();
    if (d_topk_weights != nullptr)
      write_floats({d_weights.data(), trip->tokens, trip->top_k}, *d_topk_weights, "d_topk_weights");
  });
  group.give_back(std::move(trip));
}

std::optional<DispatcherKind> kind_of(const char* name) {
  if (name == nullptr) return std::nullopt;
  const auto kind = dispatcher_kind_from_text(name);
  if (!kind)
    throw ConfigError(
        {"unknown dispatcher \"" + std::string(name) + "\"; known: alltoall, shared, hierarchical"});
  return kind;
}

/// What ranks have to ask alike: else each would wait for rows on its own way.
std::string request_text(const ml_experts_settings& asked, Index nodes) {
  return " of " + std::to_string(asked.num_experts) + " by " +
         (asked.dispatcher == nullptr ? "auto" : asked.dispatcher) +
         (asked.chunks == ML_CHUNKS_AUTO ? "" : "/" + std::to_string(asked.chunks)) +
         (nodes == 0 ? "" : " on " + std::to_string(nodes));
}

/// handle: where it goes, which may be missing on one rank alone.
Experts opened(ml_group* group, const ml_experts_settings* settings, ml_experts** handle) {
  Experts experts{group != nullptr ? group->group
                                   : held(std::make_unique<Group>(Communicator::self(), false))};
  const Turn turn(*experts.group);
  const Communicator& ranks = experts.group->ranks();
  Call call{.what = "the opening of a layer's experts"};
  in_agreement(*experts.group, call, [&] {
    const ml_experts_settings known = known_part(settings, "ml_experts_settings");
    check(known.num_experts >= 1, [] { return "num_experts must be at least 1"; });
    if (const auto wrong = mesh_violations({1, ranks.size()}, ranks.size(), known.num_experts);
        !wrong.empty())
      throw ConfigError(wrong);
    if (known.chunks < ML_CHUNKS_AUTO)
      throw ConfigError({"chunks = " + std::to_string(known.chunks) + " is negative; -1 stands for auto"});
    check(known.pretended_nodes >= 0, [] { return "pretended_nodes must be at least 0"; });
    experts.request = {known.num_experts, kind_of(known.dispatcher),
                       known.chunks == ML_CHUNKS_AUTO ? std::nullopt : std::optional<Index>(known.chunks),
                       std::min<Index>(known.pretended_nodes, ranks.size())};
    call.of = request_text(known, experts.request.pretended_nodes);
    experts.num_experts = known.num_experts;
    experts.layer = known.layer;
    const std::string of_layer = " of layer " + std::to_string(known.layer);
    experts.forward.what = "the forward" + of_layer;
    experts.backward.what = "the backward" + of_layer;
    experts.dispatch.what = "the dispatch" + of_layer;
    experts.combine.what = "the combine" + of_layer;
    experts.activation = activation_of(known.glu);
    given(handle, "experts");
  });
  choose_way(experts.group->row_facts(experts.request.pretended_nodes), experts.request,
             {});  // or it cannot be
  experts.held = experts_of(experts.num_experts, ranks.size(), ranks.rank());
  return experts;
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_experts_open(ml_group* group, const ml_experts_settings* settings, ml_experts** experts) {
  if (experts != nullptr) *experts = nullptr;
  return guarded([&] {
    auto handle = std::make_unique<ml_experts>(opened(group, settings, experts));
    *experts = handle.release();
  });
}

ml_status ml_experts_forward(ml_experts* experts, const ml_expert_weights* weights, const ml_array* x,
                             const ml_array* topk_idx, const ml_array* topk_weights, const ml_array* y,
                             ml_trip** trip) {
  if (trip != nullptr) *trip = nullptr;
  return guarded([&] {
    Experts& of = given(experts, "experts").experts;
    const Turn turn(*of.group);
    std::unique_ptr<TripMemory> memory = forward(of, weights, x, topk_idx, topk_weights, y);
    const int64_t rows = memory->experts.activations().plan.rows();
    if (trip == nullptr)
      of.group->give_back(std::move(memory));
    else
      *trip = std::make_unique<ml_trip>(of.group, rows, std::move(memory)).release();
  });
}

ml_status ml_experts_backward(ml_experts* experts, const ml_expert_weights* weights, ml_trip* trip,
                              const ml_array* dy, const ml_array* dx, const ml_array* d_topk_weights,
                              const ml_expert_grads* grads) {
  return guarded([&] {
    Experts& of = given(experts, "experts").experts;
    const Turn turn(*of.group);
    backward(of, weights, trip, dy, dx, d_topk_weights, grads);
  });
}

ml_status ml_experts_reason(const ml_experts* experts, char* text, int64_t size) {
  return answered([&] { write_text(given(experts, "experts").experts.reason, text, size); });
}

int64_t ml_trip_rows(const ml_trip* trip) {
  return trip == nullptr ? 0 : trip->rows;
}

void ml_trip_free(ml_trip* trip) {
  if (trip == nullptr || is_forked()) return;
  try {
    if (trip->memory) trip->group->give_back(std::move(trip->memory));
  } catch (const std::bad_alloc&) {  // of the list of those that wait: then this one does not
  }
  close(trip);
}

void ml_experts_close(ml_experts* experts) {
  close(experts);
}
