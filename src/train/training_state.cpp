#include "moeloom/train/training_state.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/plan/memory_need.hpp"

#include <new>
#include <unistd.h>

namespace moeloom {
namespace {

ExpertRange held_experts(const ModelConfig& config, const Mesh& mesh) {
  const MeshShape& shape = mesh.shape();
  return experts_of(std::max<Index>(config.num_experts, 1), shape.ep, shape.ep_rank(mesh.world().rank()));
}

std::vector<ParameterSpec> specs_here(const ModelConfig& config, const Mesh& mesh,
                                      const std::set<std::string>& frozen) {
  return with_frozen(parameter_specs(config, held_experts(config, mesh)), frozen);
}

double memory_of_this_node() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// The same text on ranks of like nodes, so that it is said once.
std::string does_not_fit(const MemoryNeed& need, const Mesh& mesh) {
  return "the model does not fit into memory: each of the " + std::to_string(mesh.node().size()) +
         " ranks of a node asks for " + bytes_text(need.lasting()) + " = " +
         bytes_text(need.dense_weights + need.dense_gradients) + " dense weights and gradients + " +
         bytes_text(need.expert_weights + need.expert_gradients) +
         " of its experts (ep = " + std::to_string(mesh.shape().ep) + ") + " + bytes_text(need.moments) +
         " AdamW moments, activations not counted, and the node has " + bytes_text(memory_of_this_node()) +
         "; choose a smaller model, or a larger --ep on more nodes";
}

}  // namespace

ModelMemory::ModelMemory(const ModelConfig& config, const Mesh& mesh, const KernelTable& kernels,
                         const DispatcherSettings& dispatcher, const OptimizerSettings& settings,
                         const std::set<std::string>& frozen)
    : store(specs_here(config, mesh, frozen), dispatcher.node_pool ? dispatcher.memory : nullptr),
      decoder(config, store, mesh, kernels, dispatcher),
      optimizer(store, mesh, settings) {}

std::unique_ptr<ModelMemory> make_model_memory(const ModelConfig& config, const Mesh& mesh,
                                               const KernelTable& kernels,
                                               const DispatcherSettings& dispatcher,
                                               const OptimizerSettings& settings,
                                               const std::set<std::string>& frozen) {
  const MemoryNeed need = lasting_memory(specs_here(config, mesh, frozen), mesh.shape());
  double on_node = need.lasting();
  mesh.node().all_sum(std::span(&on_node, 1));
  std::unique_ptr<ModelMemory> memory;
  agree(mesh.world(), [&] {
    // Linux gives more than it has and ends the process that uses it, without a word: so this comes first.
    if (on_node > memory_of_this_node()) throw Error(does_not_fit(need, mesh));
    try {
      memory = std::make_unique<ModelMemory>(config, mesh, kernels, dispatcher, settings, frozen);
    } catch (const std::bad_alloc&) {
      throw Error(does_not_fit(need, mesh));
    }
  });
  return memory;
}

}  // namespace moeloom
