// Rows to the ranks that hold their experts and back, for a caller that multiplies them himself.
#include "moeloom/base/parallel.hpp"

#include <array>
#include <optional>

#include "borrowed_rows.hpp"
#include "experts.hpp"

namespace moeloom::c {
namespace {

constexpr Index kRowsPerTask = 32;
/// A plan does not know how wide its rows will be.
constexpr Index kUsualWidth = 1024;

/// What all ranks of a trip must have alike: messages, and memory that ranks share, are of this size.
std::string text_of(const RowPlan& plan, Index width, bool has_scalars) {
  return " of plan " + std::to_string(plan.number) + ", D = " + std::to_string(width) +
         (has_scalars ? ", with scalars" : "");
}

RowPlan& plan_of(const Experts& experts, ml_trip* handle) {
  ml_trip& trip = given(handle, "trip");
  check(trip.plan != nullptr, [] { return "the trip is of ml_experts_forward(), whose rows stay there"; });
  check(trip.plan->num_experts == experts.num_experts && experts.group->owns(*trip.plan->way),
        [] { return "the trip is of other experts"; });
  return *trip.plan;
}

void check_both(const ml_array* slots, const ml_array* rows) {
  check((slots == nullptr) == (rows == nullptr),
        [] { return "of slot_scalars and row_scalars one is NULL; expected both or none"; });
}

/// [n], or [T, K].
std::vector<float> floats_of(const ml_array* array, const char* name, std::initializer_list<Index> shape) {
  const RowsIn read(check_array(array, name, shape), name, InPlace::kFlat);
  return {read.flat().begin(), read.flat().end()};
}

/// results = weights * rows.
void weigh(ConstMatrixView rows, std::span<const float> weights, MatrixView results) {
  parallel_blocks(results.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float* const from = rows.row(i);
      float* const to = results.row(i);
      const float weight = weights.empty() ? 1.0f : weights[at(i)];
      for (Index j = 0; j < results.cols; ++j) to[j] = weight * from[j];
    }
  });
}

/// Whole, because nothing is computed under way. Collective over the group in the first call of a kind.
Way& way_of_rows(const Experts& experts, Index top_k, Index tokens) {
  Group& group = *experts.group;
  const WayRequest& request = experts.request;
  const LayerSizes sizes{
      .hidden = kUsualWidth, .intermediate = kUsualWidth, .top_k = top_k, .tokens = tokens};
  const WayChoice choice = choose_way(group.row_facts(request.pretended_nodes), request, sizes);
  return group.way({request.num_experts, choice.kind, 0, request.pretended_nodes});
}

/// trip: where the handle goes, which may be missing on one rank alone.
std::unique_ptr<RowPlan> planned(const Experts& experts, const ml_array* topk_idx, ml_trip** trip) {
  std::vector<std::int32_t> chosen;
  Index top_k = 0, tokens = 0;
  Call call = experts.dispatch;
  in_agreement(*experts.group, call, [&] {
    const ml_array& choices = check_array(topk_idx, "topk_idx", {kAny, kAny});
    tokens = choices.shape[0], top_k = choices.shape[1];
    check(top_k >= 1, [] { return "topk_idx has no columns"; });
    chosen = chosen_of(*topk_idx, experts.num_experts);
    given(trip, "trip");
    call.numbers = {top_k, tokens};
  });
  auto made = std::make_unique<RowPlan>();
  made->num_experts = experts.num_experts;
  made->number = experts.group->next_number();
  std::array<Index, 2> largest{top_k, tokens};
  if (experts.group->ranks().size() > 1) largest = experts.group->door().largest();
  behind_door(*experts.group, call, [&] {
    made->way = &way_of_rows(experts, largest[0], largest[1]);
    made->way->dispatcher.plan(chosen, top_k, made->plan);
  });
  return made;
}

void dispatch(const Experts& experts, ml_trip* trip, const ml_array* x, const ml_array* slot_scalars,
              const ml_array* rows, const ml_array* row_scalars) {
  Group& group = *experts.group;
  Index width = 0;
  const bool has_scalars = slot_scalars != nullptr;
  std::optional<RowsIn> tokens;
  std::vector<float> slots, landed;
  Call call = experts.dispatch;
  in_agreement(group, call, [&] {
    const DispatchPlan& plan = plan_of(experts, trip).plan;
    width = check_array(x, "x", {plan.tokens, kAny}).shape[1];
    check(width >= 1, [] { return "x has no columns"; });
    call.of = text_of(*trip->plan, width, has_scalars);
    check_both(slot_scalars, row_scalars);
    check_written(check_array(rows, "rows", {plan.rows(), width}), "rows");
    if (has_scalars) {
      slots = floats_of(slot_scalars, "slot_scalars", {plan.tokens, plan.top_k});
      check_written(check_array(row_scalars, "row_scalars", {plan.rows()}), "row_scalars");
    }
    tokens.emplace(*x, "x");
  });
  RowBuffer& arrived = group.workspace().d_rows;
  const RoundTrip out{.plan = trip->plan->plan,
                      .tokens = of_width(tokens->fp32(), width),
                      .rows = arrived,
                      .scalars_out = has_scalars ? std::optional(ScalarsOut{slots, landed}) : std::nullopt,
                      .results = group.workspace().experts.output,
                      .sums = {},
                      .legs = Legs::kOut};
  Dispatcher& dispatcher = trip->plan->way->dispatcher;
  behind_door(group, call, [&] {
    dispatcher.begin(out);
    dispatcher.await_all(out);
    write_floats(arrived, *rows, "rows");
    if (has_scalars) write_floats({landed.data(), 1, std::ssize(landed)}, *row_scalars, "row_scalars");
    dispatcher.finish(out);
  });
}

void combine(const Experts& experts, ml_trip* trip, const ml_array* rows, const ml_array* row_weights,
             const ml_array* row_scalars, const ml_array* y, const ml_array* slot_scalars) {
  Group& group = *experts.group;
  Index width = 0;
  const bool has_scalars = slot_scalars != nullptr;
  std::optional<RowsIn> results_in;
  std::optional<RowsOut> sums;
  std::vector<float> weights, scalars, slots;
  Call call = experts.combine;
  in_agreement(group, call, [&] {
    const DispatchPlan& plan = plan_of(experts, trip).plan;
    width = check_array(rows, "rows", {plan.rows(), kAny}).shape[1];
    check(width >= 1, [] { return "rows has no columns"; });
    call.of = text_of(*trip->plan, width, has_scalars);
    check_both(slot_scalars, row_scalars);
    check_array(y, "y", {plan.tokens, width});
    if (row_weights != nullptr) weights = floats_of(row_weights, "row_weights", {plan.rows()});
    if (has_scalars) {
      scalars = floats_of(row_scalars, "row_scalars", {plan.rows()});
      check_written(check_array(slot_scalars, "slot_scalars", {plan.tokens, plan.top_k}), "slot_scalars");
    }
    results_in.emplace(*rows, "rows");
    sums.emplace(*y, "y");
  });
  const DispatchPlan& plan = trip->plan->plan;
  RowBuffer& results = group.workspace().experts.output;
  const RoundTrip home{
      .plan = plan,
      .tokens = {},
      .rows = group.workspace().d_rows,
      .scalars_out = std::nullopt,
      .results = results,
      .sums = of_width(sums->fp32(), width),
      .scalars_back = has_scalars ? std::optional(ScalarsBack{scalars, slots}) : std::nullopt,
      .legs = Legs::kHome};
  Dispatcher& dispatcher = trip->plan->way->dispatcher;
  behind_door(group, call, [&] {
    dispatcher.begin(home);
    weigh(results_in->fp32(), weights, results);
    dispatcher.send_all_back(home);
    dispatcher.finish(home);
    sums->store();
    if (has_scalars) write_floats({slots.data(), plan.tokens, plan.top_k}, *slot_scalars, "slot_scalars");
  });
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_dispatch_plan(ml_experts* experts, const ml_array* topk_idx, ml_trip** trip) {
  if (trip != nullptr) *trip = nullptr;
  return guarded([&] {
    const Experts& of = given(experts, "experts").experts;
    const Turn turn(*of.group);
    std::unique_ptr<RowPlan> plan = planned(of, topk_idx, trip);
    const int64_t rows = plan->plan.rows();
    *trip = std::make_unique<ml_trip>(of.group, rows, nullptr, std::move(plan)).release();
  });
}

ml_status ml_trip_counts(const ml_trip* trip, const ml_array* counts) {
  return guarded([&] {
    const ml_trip& of = given(trip, "trip");
    check(of.plan != nullptr, [] { return "the trip is of ml_experts_forward(), whose rows stay there"; });
    const moeloom::GroupedRows rows = of.plan->plan.grouped_rows();
    std::vector<moeloom::Index> each;
    for (moeloom::Index expert = 0; expert < rows.groups(); ++expert) each.push_back(rows.of_group(expert));
    write_integers(each, check_array(counts, "counts", {std::ssize(each)}), "counts");
  });
}

ml_status ml_dispatch(ml_experts* experts, ml_trip* trip, const ml_array* x, const ml_array* slot_scalars,
                      const ml_array* rows, const ml_array* row_scalars) {
  return guarded([&] {
    const Experts& of = given(experts, "experts").experts;
    const Turn turn(*of.group);
    dispatch(of, trip, x, slot_scalars, rows, row_scalars);
  });
}

ml_status ml_combine(ml_experts* experts, ml_trip* trip, const ml_array* rows, const ml_array* row_weights,
                     const ml_array* row_scalars, const ml_array* y, const ml_array* slot_scalars) {
  return guarded([&] {
    const Experts& of = given(experts, "experts").experts;
    const Turn turn(*of.group);
    combine(of, trip, rows, row_weights, row_scalars, y, slot_scalars);
  });
}
