#include "model_memory.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"

#include <new>
#include <unistd.h>

namespace moeloom {
namespace {

ExpertRange held_experts(const ModelConfig& config, const Mesh& mesh) {
  const MeshShape& shape = mesh.shape();
  return experts_of(std::max<Index>(config.num_experts, 1), shape.ep, shape.ep_rank(mesh.world().rank()));
}

/// Bytes of one rank, without activations and what kernels keep.
struct MemoryNeed {
  double dense = 0;  // weights and gradients
  double experts = 0;
  double moments = 0;
  double total() const { return dense + experts + moments; }
};

MemoryNeed memory_need(const ModelConfig& config, const Mesh& mesh) {
  constexpr double kTwoFloats = 2 * sizeof(float);
  MemoryNeed need;
  for (const ParameterSpec& spec : parameter_specs(config, held_experts(config, mesh)))
    (spec.placement == Placement::kWorld ? need.dense : need.experts) +=
        kTwoFloats * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
  need.moments = need.dense / static_cast<double>(mesh.shape().world()) +
                 need.experts / static_cast<double>(mesh.shape().dp);
  return need;
}

double memory_of_this_node() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// The same text on ranks of like nodes, so that it is said once.
std::string does_not_fit(const MemoryNeed& need, const Mesh& mesh) {
  return "the model does not fit into memory: each of the " + std::to_string(mesh.node().size()) +
         " ranks of a node asks for " + bytes_text(need.total()) + " = " + bytes_text(need.dense) +
         " dense weights and gradients + " + bytes_text(need.experts) +
         " of its experts (ep = " + std::to_string(mesh.shape().ep) + ") + " + bytes_text(need.moments) +
         " AdamW moments, activations not counted, and the node has " + bytes_text(memory_of_this_node()) +
         "; choose a smaller model, or a larger --ep on more nodes";
}

}  // namespace

ModelMemory::ModelMemory(const ModelConfig& config, const Mesh& mesh, const KernelTable& kernels,
                         const OptimizerSettings& settings)
    : store(parameter_specs(config, held_experts(config, mesh))),
      decoder(config, store, mesh, kernels),
      optimizer(store, mesh, settings) {}

std::unique_ptr<ModelMemory> make_model_memory(const ModelConfig& config, const Mesh& mesh,
                                               const KernelTable& kernels,
                                               const OptimizerSettings& settings) {
  const MemoryNeed need = memory_need(config, mesh);
  double on_node = need.total();
  mesh.node().all_sum(std::span(&on_node, 1));
  std::unique_ptr<ModelMemory> memory;
  agree(mesh.world(), [&] {
    // Linux gives more than it has and ends the process that uses it, without a word: so this comes first.
    if (on_node > memory_of_this_node()) throw Error(does_not_fit(need, mesh));
    try {
      memory = std::make_unique<ModelMemory>(config, mesh, kernels, settings);
    } catch (const std::bad_alloc&) {
      throw Error(does_not_fit(need, mesh));
    }
  });
  return memory;
}

}  // namespace moeloom
