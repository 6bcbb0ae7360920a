// Corruption that no error announces: numbers that must be the same and are not.
//
// Replicas: dense weights lie on every rank, experts down a column of dp; ranks that no longer agree train
// different models and average them. Held: weights and moments are what the update before left, also those
// that only one rank has. Steps: a gradient that is computed twice from the same weights and
// tokens is the same, bit for bit; where it is not, a processor or its memory is at fault.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"
#include "train/batch_source.hpp"
#include "train/sharded_optimizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace moeloom {

/// Thrown on every rank: ranks, or two runs of one step, differ. The weights are not to be saved.
class DifferenceError : public AgreedError {
 public:
  explicit DifferenceError(const std::string& text) : AgreedError(text, Cause::kCorrupt) {}
};

/// What must be the same wherever it lies, before a step's update.
struct Replicas {
  const ParameterStore& store;
  ShardedOptimizer& optimizer;
  BatchSource batches;
  Index step = 0;            // under way
  double learning_rate = 0;  // of that step
};

/// Compares by hash: weights, biases of routers and counts of updates of each parameter, dense ones over the
/// world, each expert down its column of dp; the step, its learning rate and the tokens of the next step as
/// each rank's random stream draws them for the first rank. Moments are sharded: no two ranks hold one. ->
/// "NAME, expert 5, on rank 1": the ranks that differ from most, or all of them where there is no most; empty
/// if nothing differs. The first parameter in store order. Collective over the world; the same on every rank.
std::string first_difference_of_replicas(const Replicas& replicas, const Mesh& mesh);

/// A hash of some of a rank's numbers; the same names in the same order on every rank.
struct NamedHash {
  std::string name;
  std::uint64_t hash = 0;
  bool operator==(const NamedHash&) const = default;
};
using NamedHashes = std::vector<NamedHash>;

/// This rank's own gradients before they are reduced, head first, as a backward meets them.
NamedHashes gradient_hashes(const ParameterStore& store);
/// This rank's weights, and its share of the moments: what only an update changes.
NamedHashes held_hashes(const ParameterStore& store, ShardedOptimizer& optimizer);
/// "NAME on rank 1": the first that differs on some rank; empty if none. Collective over the world; the same
/// on every rank.
std::string first_difference(const NamedHashes& before, const NamedHashes& after, const Communicator& world);

}  // namespace moeloom
