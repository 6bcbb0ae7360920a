#include "train/training_state.hpp"

#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "io/disk_memory.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/node_weights.hpp"
#include "moeloom/base/errors.hpp"
#include "train/conflicts.hpp"
#include "train/lasting_memory.hpp"

#include <algorithm>
#include <new>

namespace moeloom {
namespace {

/// The same text on ranks of like nodes, so that it is said once.
std::string does_not_fit(const LastingMemory& need, const Mesh& mesh, Index may_lie_on_a_disk) {
  return "the model does not fit into memory: each of the " + std::to_string(mesh.node().size()) +
         " ranks of a node asks for " + bytes_text(need.lasting()) + " = " +
         bytes_text(need.dense_weights + need.dense_gradients) + " dense weights and gradients + " +
         bytes_text(need.expert_weights + need.expert_gradients) +
         " of its experts (ep = " + std::to_string(mesh.shape().ep) + ") + " + bytes_text(need.moments) +
         " AdamW moments" + (need.exact_sums > 0 ? " + " + bytes_text(need.exact_sums) + " exact sums" : "") +
         ", activations not counted, and the node has " +
         bytes_text(static_cast<double>(memory_of_this_node())) +
         "; choose a smaller model, or a larger ep on more nodes" +
         (may_lie_on_a_disk > 0
              ? ", or offload = DIR on a disk for the " + bytes_text(static_cast<double>(may_lie_on_a_disk)) +
                    " of its frozen experts"
              : "");
}

/// Throws ShapeError for what adds up gradients in an order of its own.
LeafSettings checked_leaves(const ModelConfig& config, const TrainingStateSettings& settings) {
  const LeafSettings leaves = leaves_of(settings.job.batch);
  if (!leaves.exact()) return leaves;
  const bool loops = settings.kernels.grouped_matmul.forward == native_grouped_matmul().forward;
  require(
      settings.kernels.dense.forward != native_forward && !(config.has_experts() && loops),
      "exact sums: OpenBLAS chooses its kernel by the number of rows; they need products on register tiles");
  return leaves;
}

/// Throws ShapeError for what cannot be had together.
std::vector<ParameterSpec> checked(std::vector<ParameterSpec> specs, const TrainingStateSettings& settings) {
  Job job = settings.job;
  job.exchange.rebalance = settings.dispatcher.rebalance.has_value();
  job.exchange.combine = settings.dispatcher.wire.combine;
  job.exchange.wire = settings.dispatcher.wire.dtype;
  const auto found = conflicts(job, settings.routing.row_budget);
  require(found.empty(), joined(found, "; "));
  return specs;
}

}  // namespace

LeafSettings leaves_of(const BatchShape& batch) {
  if (batch.exact == 0) return {};
  return {.sequences = batch.exact, .per_step = batch.sequences / batch.exact};
}

std::vector<ParameterSpec> kept_specs(const ModelConfig& config, ExpertRange experts,
                                      const std::set<std::string>& frozen, const Keeping& keeping) {
  return with_gradients(with_storage(with_frozen(parameter_specs(config, experts), frozen), keeping.masters),
                        keeping.gradients);
}

std::vector<ParameterSpec> specs_here(const ModelConfig& config, const Mesh& mesh,
                                      const std::set<std::string>& frozen, const Keeping& keeping) {
  return kept_specs(config, mesh.experts(std::max<Index>(config.num_experts, 1)), frozen, keeping);
}

TrainingState::TrainingState(const ModelConfig& config, const Mesh& mesh,
                             const TrainingStateSettings& settings)
    : store(checked(specs_here(config, mesh, settings.frozen, settings.job.keeping), settings),
            StoreHomes{.experts = settings.dispatcher.weights_memory(),
                       .halves = settings.halves,
                       .dense = settings.dense,
                       .frozen = settings.frozen_on_disk},
            checked_leaves(config, settings)),
      decoder(config, store, mesh, settings.kernels, settings.dispatcher, settings.routing,
              settings.job.keeping),
      optimizer(store, mesh, settings.optimizer, settings.job) {}

ShardedDense sharded_dense(const Mesh& mesh, const std::vector<ParameterSpec>& specs, bool with_halves,
                           Index pretended_nodes) {
  ShardedDense dense{.gradients = true};
  const bool alone = mesh.world().all_max(mesh.node().size()) <= 1;
  if (alone) return dense;
  try {
    dense.weights = std::make_shared<const NodeWeights>(
        mesh.world(), ParameterStore::dense_floats(specs, with_halves), pretended_nodes);
  } catch (const AgreedError&) {  // on every rank: each has its own
  }
  return dense;
}

std::unique_ptr<TrainingState> make_training_state(const ModelConfig& config, const Mesh& mesh,
                                                   const TrainingStateSettings& settings) {
  const Keeping& keeping = settings.job.keeping;
  const auto specs = specs_here(config, mesh, settings.frozen, keeping);
  const Index disk_bytes = ParameterStore::disk_bytes(specs);
  const Index may_lie_on_a_disk = keeping.offloads() ? 0 : disk_bytes;
  // Linux gives more than it has and ends the process that uses it, without a word: so this comes first.
  const auto require_room = [&](Index sharers) {
    Job here = settings.job;
    here.layout.mesh = mesh.shape();
    here.layout.ranks_per_node = sharers;
    const LastingMemory need = lasting_memory(specs, here);
    double on_node = need.lasting();
    mesh.node().all_sum(std::span(&on_node, 1));
    agree(mesh.world(), [&] {
      if (on_node > static_cast<double>(memory_of_this_node()))
        throw Error(does_not_fit(need, mesh, may_lie_on_a_disk));
    });
    return need;
  };
  LastingMemory need = require_room(mesh.node().size());
  TrainingStateSettings with_halves = settings;
  with_halves.halves = shared_halves(mesh.node(), specs);
  if (keeping.shard_dense) {
    with_halves.dense =
        sharded_dense(mesh, specs, with_halves.halves != nullptr, settings.job.layout.pretended_nodes);
    with_halves.job.exchange.overlap_reduce = true;
  }
  const bool alone = std::ranges::any_of(specs, is_kept_once) && !with_halves.halves;
  if (mesh.world().all_max(alone ? 1.0 : 0.0) > 0)
    need = require_room(with_halves.halves ? mesh.node().size() : 1);
  std::unique_ptr<TrainingState> state;
  agree(mesh.world(), [&] {
    if (keeping.offloads() && disk_bytes > 0)
      with_halves.frozen_on_disk = std::make_shared<const DiskMemory>(keeping.offload, disk_bytes);
    try {
      state = std::make_unique<TrainingState>(config, mesh, with_halves);
    } catch (const std::bad_alloc&) {
      throw Error(does_not_fit(need, mesh, may_lie_on_a_disk));
    }
  });
  return state;
}

}  // namespace moeloom
