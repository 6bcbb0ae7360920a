// A layer's experts by moeloom.h, whose arrays, and the order of whose calls, the input makes.
#include "moeloom/c/moeloom.h"

#include <cstdint>

#include "fuzz/c_hostile_arrays.hpp"

namespace moeloom::fuzz {
namespace {

/// Ranks of this process alone; for the whole run.
ml_group* group() {
  static ml_group* const alone = [] {
    ml_group* opened = nullptr;
    expect(ml_group_open(nullptr, &opened) == ML_OK, ml_last_error());
    return opened;
  }();
  return alone;
}
ml_status group_sum(Bytes& in, Arrays& a) {
  std::vector<const ml_array*> arrays;
  for (std::int64_t i = in.size(); i > 0; --i)
    arrays.push_back(in.next() % 2 == 0 ? a.floats({in.size(), in.size()})
                                        : a.doubles({in.size(), in.size()}));
  return ml_group_sum(group(), arrays.data(), static_cast<std::int64_t>(arrays.size()), 2);
}

/// A layer's experts. Handles close in both orders, some of them are NULL, and some trips go to another
/// layer.
struct Layer {
  Layer(Bytes& in) : experts(in.size() + 1), hidden(in.size()), inter(in.size()), top_k(in.size() + 1) {
    const ml_experts_settings settings{
        sizeof(ml_experts_settings), experts, 0, nullptr, nullptr, in.number(2), in.number(2)};
    const std::uint8_t kind = in.next();
    status = ml_experts_open(kind % 8 == 7 ? nullptr : group(), &settings, &handle);
    if (kind % 8 == 6) ml_experts_open(group(), &settings, &other);
    trip_first = kind / 8 % 2 == 1;
  }
  Layer(const Layer&) = delete;
  ~Layer() {
    if (trip_first) ml_trip_free(trip);
    ml_experts_close(handle);
    if (!trip_first) ml_trip_free(trip);
    ml_experts_close(other);
  }
  /// Those that the trip comes back to.
  ml_experts* back() const { return other == nullptr ? handle : other; }
  std::int64_t experts, hidden, inter, top_k;
  ml_status status;
  ml_experts *handle = nullptr, *other = nullptr;
  ml_trip* trip = nullptr;
  bool trip_first = false;
};

ml_status experts(Bytes& in, Arrays& a) {
  Layer layer(in);
  const auto& [e, d, f, k, status, handle, other, trip, trip_first] = layer;
  const std::int64_t tokens = in.size();
  const auto weights = [&]() -> ml_expert_weights {
    const bool biased = in.next() % 2 == 1;
    return {sizeof(ml_expert_weights), a.floats({e, 2 * f, d}), a.floats({e, d, f}),
            biased ? a.floats({e, 2 * f}) : nullptr, biased ? a.floats({e, d}) : nullptr};
  };
  const ml_expert_weights used = weights();
  ml_status last = ml_experts_forward(handle, &used, a.floats({tokens, d}), a.integers({tokens, k}, e),
                                      a.floats({tokens, k}), a.floats({tokens, d}), &layer.trip);
  for (int passes = in.next() % 3; passes > 0; --passes) {
    const ml_expert_weights g = weights();
    const ml_expert_grads grads{sizeof(ml_expert_grads),
                                g.gate_up,
                                g.down,
                                g.gate_up_bias,
                                g.down_bias,
                                choice(in),
                                choice(in),
                                choice(in),
                                choice(in)};
    last = ml_experts_backward(layer.back(), &used, trip, a.floats({tokens, d}), a.optional({tokens, d}),
                               a.optional({tokens, k}), in.next() % 2 == 0 ? &grads : nullptr);
  }
  return last;
}

ml_status dispatch(Bytes& in, Arrays& a) {
  Layer layer(in);
  const auto& [e, d, f, k, status, handle, other, trip, trip_first] = layer;
  const std::int64_t tokens = in.size();
  ml_status last = ml_dispatch_plan(handle, a.integers({tokens, k}, e), &layer.trip);
  const std::int64_t rows = ml_trip_rows(trip);
  if (in.next() % 2 == 1) last = ml_trip_counts(trip, a.integers({e}, 1));
  const bool scalars = in.next() % 2 == 1;
  const ml_array *const slots = scalars ? a.floats({tokens, k}) : nullptr, *const each =
                                                                               scalars ? a.floats({rows})
                                                                                       : nullptr;
  if (in.next() % 2 == 0)
    last = ml_dispatch(layer.back(), trip, a.floats({tokens, d}), slots, a.floats({rows, d}), each);
  return in.next() % 2 == 0 ? last
                            : ml_combine(layer.back(), trip, a.floats({rows, d}), a.optional({rows}), each,
                                         a.floats({tokens, d}), slots);
}

constexpr std::array<Call, 3> kCalls = {group_sum, experts, dispatch};

}  // namespace

std::vector<Target> c_layer_targets() {
  return {target_of<kCalls>("c_layer")};
}

}  // namespace moeloom::fuzz
