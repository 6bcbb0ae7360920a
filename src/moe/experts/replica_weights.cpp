#include "experts/replica_weights.hpp"

#include "experts/expert_arrays.hpp"

namespace moeloom {
namespace {

constexpr Index kElsewhere = -1;  // in no memory that the ranks of a node share
constexpr Index kLineFloats = 16;

/// Floats in which an array begins at a cache line's start.
Index floats_of(std::span<const std::byte> array) {
  return kLineFloats * ceil_div(std::ssize(array), kLineFloats * static_cast<Index>(sizeof(float)));
}

}  // namespace

ReplicaWeights::ReplicaWeights(const ReplicaShare& share, const NodePeers& peers, const Communicator& ep,
                               RebalanceCounts& traffic)
    : share_(share), peers_(peers), traffic_(traffic), messages_(ep, Channel::kReplicas) {
  const std::vector<Replica>& replicas = share.replicas();
  ExpertActivations& saved = share.own().saved;
  if (saved.replicas.size() < replicas.size()) saved.replicas.resize(replicas.size());
  if (!replicas.empty()) arrays_ = arrays_of(share.own().shard, 0);
  places_.assign(replicas.size(), std::vector<Index>(arrays_.size(), kElsewhere));
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const auto from = static_cast<int>(replicas[i].owner);
    firsts_.push_back(receives_);
    if (peers.share(share.rank(), from)) {
      messages_.receive_bytes(from, std::as_writable_bytes(std::span(places_[i])));
      ++receives_;
    } else {
      receive_missing(static_cast<Index>(i));
    }
  }
  tell_places();
}

/// What lies in no memory of the node, into this rank's own.
Index ReplicaWeights::receive_missing(Index i) {
  Index floats = 0, count = 0;
  for (std::size_t n = 0; n < arrays_.size(); ++n)
    if (places_[at(i)][n] == kElsewhere) floats += floats_of(arrays_[n]);
  Matrix& weights = share_.own().saved.replicas[at(i)].weights;
  weights.reshape_uninitialised(1, floats);
  float* next = weights.row(0);
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    if (places_[at(i)][n] != kElsewhere) continue;
    const std::span<std::byte> into(reinterpret_cast<std::byte*>(next), arrays_[n].size());
    messages_.receive_bytes(static_cast<int>(share_.replicas()[at(i)].owner), into);
    next += floats_of(arrays_[n]);
    ++count;
  }
  receives_ += count;
  return count;
}

void ReplicaWeights::tell_places() {
  if (!share_.any()) return;
  const ReplicaPlacement& placement = share_.placement();
  const ExpertRange held = share_.held();
  for (Index step = 1; step < placement.ranks(); ++step) {
    const Index to = (share_.rank() + step) % placement.ranks();
    for (Index i = 0; i < held.count; ++i)
      if (placement.holds_replica(to, held.begin + i)) tell_places_of(i, to);
  }
}

void ReplicaWeights::tell_places_of(Index expert, Index to) {
  const bool near = peers_.share(share_.rank(), to);
  const auto arrays = arrays_of(share_.own().shard, expert);
  std::vector<Index> places(arrays.size(), kElsewhere);
  for (std::size_t n = 0; n < arrays.size(); ++n) {
    if (near) places[n] = peers_.memory->offset_of(arrays[n].data()).value_or(kElsewhere);
    if (places[n] == kElsewhere) to_send_.push_back({static_cast<int>(to), arrays[n]});
  }
  if (!near) return;
  told_.push_back(std::move(places));
  messages_.send_bytes(static_cast<int>(to), std::as_bytes(std::span(told_.back())));
}

void ReplicaWeights::send() {
  for (const auto& [to, array] : to_send_) {
    messages_.send_bytes(to, array);
    traffic_.weight_bytes += std::ssize(array);
  }
}

const ExpertShard& ReplicaWeights::await(Index i) {
  const Index owner = share_.replicas()[at(i)].owner;
  if (peers_.share(share_.rank(), owner)) {
    messages_.serve_until_arrived(firsts_[at(i)], 1);
    const Index first = receives_;
    messages_.serve_until_arrived(first, receive_missing(i));
  } else {
    messages_.serve_until_arrived(firsts_[at(i)], std::ssize(arrays_));
  }
  HeldReplica& replica = share_.own().saved.replicas[at(i)];
  const float* next = replica.weights.rows() > 0 ? replica.weights.row(0) : nullptr;
  std::vector<const std::byte*> places;
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    if (const Index place = places_[at(i)][n]; place != kElsewhere) {
      places.push_back(peers_.address(owner, place));
      continue;
    }
    places.push_back(reinterpret_cast<const std::byte*>(next));
    next += floats_of(arrays_[n]);
  }
  replica.shard = expert_at(share_.own().shard, places);
  return replica.shard;
}

}  // namespace moeloom
