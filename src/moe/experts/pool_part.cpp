#include "experts/pool_part.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

Index place_of(const NodeMemory& memory, ConstMatrixView numbers) {
  return numbers.rows == 0 ? 0 : memory.offset_of(numbers.data);
}

PoolPlaces::Weight place_of_weight(const NodeMemory& memory, ConstRows numbers) {
  return numbers.visit([&](auto view) -> PoolPlaces::Weight {
    return {view.rows == 0 ? 0 : memory.offset_of(view.data), numbers.type()};
  });
}

PoolPlaces::Factors places_of(const NodeMemory& memory, const LowRank& part, Index experts) {
  return {.a = place_of(memory, part.a),
          .b = place_of(memory, part.b),
          .d_a = place_of(memory, part.d_a),
          .d_b = place_of(memory, part.d_b),
          .column = part.column,
          .out = part.b.rows / experts,
          .rank = part.b.cols,
          .scale = part.scale,
          .trained = part.d_a.rows > 0};
}

PoolPlaces::Adapter places_of(const NodeMemory& memory, std::span<const LowRank> parts, Index experts) {
  PoolPlaces::Adapter places;
  require(parts.size() <= places.size(),
          "the node pool has places for two additions to a product of experts");
  std::ranges::transform(parts, places.begin(),
                         [&](const LowRank& part) { return places_of(memory, part, experts); });
  return places;
}

}  // namespace

PoolPlaces places_of_weights(const NodeMemory& memory, const ExpertShard& shard) {
  const auto place = [&](ConstMatrixView numbers) { return place_of(memory, numbers); };
  return {.gate_up = place_of_weight(memory, shard.gate_up_weights().stacked),
          .down = place_of_weight(memory, shard.down_weights().stacked),
          .d_gate_up = place(shard.d_gate_up),
          .d_down = place(shard.d_down),
          .gate_up_bias = place(shard.biases.gate_up),
          .down_bias = place(shard.biases.down),
          .d_gate_up_bias = place(shard.biases.d_gate_up),
          .d_down_bias = place(shard.biases.d_down),
          .gate_up_adapter = places_of(memory, shard.adapters.gate_up, shard.experts),
          .down_adapter = places_of(memory, shard.adapters.down, shard.experts)};
}

std::vector<LowRank> PoolPart::adapter(const PoolPlaces::Adapter& places, Index in) const {
  std::vector<LowRank> parts;
  for (const PoolPlaces::Factors& factors : places) {
    if (factors.rank == 0) continue;
    LowRank& part = parts.emplace_back();
    part.column = factors.column;
    part.scale = factors.scale;
    part.a = weight(factors.a, factors.rank, in);
    part.b = weight(factors.b, factors.out, factors.rank);
    if (!factors.trained) continue;
    part.d_a = weight(factors.d_a, factors.rank, in);
    part.d_b = weight(factors.d_b, factors.out, factors.rank);
  }
  return parts;
}

Index PoolPart::ranks_of(const PoolPlaces::Adapter& places) {
  Index ranks = 0;
  for (const PoolPlaces::Factors& factors : places) ranks += factors.rank;
  return ranks;
}

}  // namespace moeloom
