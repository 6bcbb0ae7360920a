#include "moe/experts/expert_runner.hpp"

#include "base/meanwhile.hpp"

#include "experts/branch_sums.hpp"
#include "experts/near_rows.hpp"
#include "experts/replica_weights.hpp"

namespace moeloom {

ExpertRunner::ExpertRunner(const DispatcherSettings& dispatcher) {
  if (!dispatcher.rebalance || dispatcher.memory == nullptr) return;
  peers_ = {dispatcher.memory, dispatcher.nodes};
  sums_ = RowBuffer(dispatcher.memory);
}

double ExpertRunner::sum_bytes(Index own, Index floats, Index ranks, bool exact) {
  return BranchSums::bytes_of(own, floats, ranks, exact);
}

void ExpertRunner::forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                           RebalanceCounts& counts) {
  prepare_forward(pass);
  const auto run = trip.comes_home() ? forward_chunk : keep_chunk;
  const ReplicaShare share(pass, trip.plan, dispatcher.ep().rank());
  ReplicaWeights weights(share, peers_, dispatcher.ep(), counts);
  const Meanwhile weights_travel(weights.progress());
  NearRows near(share.own(), dispatcher, trip);
  const auto compute = [&](const ExpertChunk& rows) { run(share.own(), rows); };
  Index replica = 0;
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    pass.clock.enter(Phase::kExperts);
    while (!dispatcher.arrived(chunk) && near.compute_next(chunk, compute)) continue;
    pass.clock.enter(Phase::kDispatch);
    dispatcher.await(trip, chunk);
    if (chunk == 0) weights.send();  // rows are awaited first
    pass.clock.enter(Phase::kExperts);
    near.compute_rest(chunk, compute);
    for (; share.replica_is_in(replica, trip.plan.chunks.experts_of(chunk)); ++replica) {
      pass.clock.enter(Phase::kDispatch);
      const ExpertShard& shard = weights.await(replica);
      pass.clock.enter(Phase::kExperts);
      run(share.of_replica(replica, shard), {{0, 1}, share.replicas()[at(replica)].rows});
    }
    if (!trip.comes_home()) continue;
    pass.clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
  pass.clock.enter(Phase::kCombine);
  weights.finish();
}

void ExpertRunner::backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
                            Write gradients, RebalanceCounts& counts) {
  const ChunkPlan& chunks = trip.plan.chunks;
  prepare_backward(pass);
  const ReplicaShare share(pass, trip.plan, dispatcher.ep().rank());
  BranchSums sums(share, peers_, dispatcher.ep(), sums_, counts);
  const Meanwhile sums_travel(sums.progress());
  NearRows near(share.own(), dispatcher, trip);
  const auto compute = [&](const ExpertChunk& rows) { backward_chunk(share.own(), rows, trip.rows); };
  // Others wait for rows, nobody for weight gradients: those fill the time until rows come, and that in which
  // the last ones travel.
  Index with_gradients = 0, replica = 0;
  const auto next_gradients = [&] {
    sums.sum_own(share.own_in(chunks.experts_of(with_gradients++)), trip.rows, gradients);
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
    for (; share.replica_is_in(replica, chunks.experts_of(chunk)); ++replica)
      backward_chunk(share.of_replica(replica, pass.saved.replicas[at(replica)].shard),
                     {{0, 1}, share.replicas()[at(replica)].rows}, trip.rows);
    pass.clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
  pass.clock.enter(Phase::kExperts);
  sums.sum_replicas(trip.rows);
  while (with_gradients < dispatcher.chunks()) next_gradients();
  pass.clock.enter(Phase::kCombine);
  sums.finish(gradients);
}

}  // namespace moeloom
