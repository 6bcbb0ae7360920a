#include "moeloom/moe/experts/expert_runner.hpp"

#include "experts/near_rows.hpp"

namespace moeloom {
void OwnExperts::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) const {
  prepare_forward(pass);
  NearRows near(pass, dispatcher, trip);
  const auto compute = [&](const ExpertChunk& rows) {
    trip.one_way ? keep_chunk(pass, rows) : forward_chunk(pass, rows);
  };
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    pass.clock.enter(Phase::kExperts);
    while (!dispatcher.arrived(chunk) && near.compute_next(chunk, compute)) continue;
    pass.clock.enter(Phase::kDispatch);
    dispatcher.await(trip, chunk);
    pass.clock.enter(Phase::kExperts);
    near.compute_rest(chunk, compute);
    if (trip.one_way) continue;
    pass.clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
}

void OwnExperts::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                          Write gradients) const {
  const ChunkPlan& chunks = trip.plan.chunks;
  prepare_backward(pass);
  NearRows near(pass, dispatcher, trip);
  const auto compute = [&](const ExpertChunk& rows) { backward_chunk(pass, rows, trip.rows); };
  // Others wait for rows, nobody for weight gradients: those fill the time until rows come, and that in which
  // the last ones travel.
  Index with_gradients = 0;
  const auto next_gradients = [&] {
    weight_gradients(pass, chunk_of(chunks, with_gradients++), trip.rows, gradients);
  };
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    pass.clock.enter(Phase::kExperts);
    while (!dispatcher.arrived(chunk)) {
      if (near.compute_next(chunk, compute)) continue;
      if (with_gradients >= chunk) break;
      next_gradients();
    }
    pass.clock.enter(Phase::kDispatch);
    dispatcher.await(trip, chunk);
    pass.clock.enter(Phase::kExperts);
    near.compute_rest(chunk, compute);
    pass.clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
  pass.clock.enter(Phase::kExperts);
  while (with_gradients < dispatcher.chunks()) next_gradients();
}

void PooledExperts::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await_all(trip);
  pass.clock.enter(Phase::kExperts);
  pool_.forward(pass);
  if (trip.one_way) return;
  pass.clock.enter(Phase::kCombine);
  dispatcher.send_all_back(trip);
}

void PooledExperts::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                             Write gradients) {
  pass.clock.enter(Phase::kDispatch);
  dispatcher.await_all(trip);
  pass.clock.enter(Phase::kExperts);
  pool_.backward(pass, trip.rows, gradients);
  pass.clock.enter(Phase::kCombine);
  dispatcher.send_all_back(trip);
}

ExpertRunner::Way ExpertRunner::make_way(const DispatcherSettings& dispatcher) {
  if (auto memory = dispatcher.weights_memory()) return PooledExperts(std::move(memory));
  if (dispatcher.rebalance) return RebalancedExperts();
  return OwnExperts();
}

void ExpertRunner::refresh(PackedExperts& packed, const GroupedMatmulKernel& kernel, const ExpertShard& shard,
                           std::uint64_t version) {
  std::visit([&](const auto& way) { way.refresh(packed, kernel, shard, version); }, way_);
}

void ExpertRunner::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) {
  std::visit([&](auto& way) { way.forward(pass, dispatcher, trip); }, way_);
}

void ExpertRunner::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                            Write gradients) {
  std::visit([&](auto& way) { way.backward(pass, dispatcher, trip, gradients); }, way_);
}

PoolCounts ExpertRunner::counts() const {
  return std::visit([](const auto& way) { return way.counts(); }, way_);
}

RebalanceCounts ExpertRunner::rebalance_traffic() const {
  return std::visit([](const auto& way) { return way.rebalance_traffic(); }, way_);
}

Index ExpertRunner::replica_sums() const {
  const auto* rebalanced = std::get_if<RebalancedExperts>(&way_);
  return rebalanced == nullptr ? 0 : rebalanced->sums();
}

}  // namespace moeloom
