// Optimizer state that follows its experts to other ranks.
#include "moeloom/base/stretch.hpp"
#include "moeloom/comm/messages.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace moeloom {

void ShardedOptimizer::move_experts(Index layer, std::span<const SeatMove> moves) {
  for (Index p = 0; p < std::ssize(store_.parameters()); ++p) {
    const ParameterSpec& spec = store_.parameters()[at(p)].spec;
    if (spec.layer != layer || spec.placement != Placement::kExperts || spec.frozen) continue;
    move_moments(p, moves);
    move_times(p, moves);
  }
}

/// A block goes from its owner down one column of dp to its owner in another. Both know every move, so they
/// name blocks in the same order.
void ShardedOptimizer::move_moments(Index parameter, std::span<const SeatMove> moves) {
  const Index seats = store_.parameters()[at(parameter)].spec.groups;  // of a rank
  std::map<std::pair<Index, Index>, const OwnedBlock*> owned;          // by group and block
  for (const OwnedBlock& block : blocks_)
    if (block.parameter == parameter) owned[{block.group, block.block}] = &block;
  const Index blocks = std::ssize(owners_[at(parameter)]) / seats;
  const MeshShape& shape = mesh_.shape();
  const auto owner_of = [&](Index seat, Index block) {
    return shape.world_rank(owners_[at(parameter)][at(seat % seats * blocks + block)], seat / seats);
  };
  std::vector<Moment> moments = {Moment::kFirst};
  if (!is_of_muon(store_.parameters()[at(parameter)].spec, keeping_.optimizer))
    moments.push_back(Moment::kSecond);
  const Index me = mesh_.world().rank();
  std::vector<std::pair<Index, std::vector<float>>> leaving;  // to whom; its place is taken by what arrives
  Messages messages(mesh_.world());
  for (const SeatMove& move : moves)
    for (Index block = 0; block < blocks; ++block) {
      const Index from = owner_of(move.from, block), to = owner_of(move.to, block);
      for (const Moment each : moments) {
        if (from == me) {
          const auto values = moments_of(*owned.at({move.from % seats, block}), each).words();
          leaving.emplace_back(to, std::vector<float>(values.begin(), values.end()));
        }
      }
    }
  for (const SeatMove& move : moves)
    for (Index block = 0; block < blocks; ++block) {
      if (owner_of(move.to, block) != me) continue;
      for (const Moment each : moments)
        messages.receive(static_cast<int>(owner_of(move.from, block)),
                         moments_of(*owned.at({move.to % seats, block}), each).words());
    }
  for (const auto& [to, values] : leaving) messages.send(static_cast<int>(to), values);
  messages.finish();
}

void ShardedOptimizer::move_times(Index parameter, std::span<const SeatMove> moves) {
  const Index seats = store_.parameters()[at(parameter)].spec.groups;
  std::vector<Index>& times = times_[at(parameter)];
  const std::vector<std::int64_t> all =
      mesh_.ep().all_gather(std::span<const std::int64_t>(times.data(), times.size()));
  for (const SeatMove& move : moves)
    if (move.to / seats == mesh_.ep().rank()) times[at(move.to % seats)] = all[at(move.from)];
}

}  // namespace moeloom
