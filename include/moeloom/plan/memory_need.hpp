// What a rank of a training job holds, counted from the structures that hold it, before any of it is there.
//
// Every matrix of the model, the optimizer and the dispatcher is one term here, in the order of its header,
// and is rounded as the allocator rounds it. What MPI, the program and the system's caches take is not
// counted.
#pragma once

#include "moeloom/plan/cost/exchange_cost.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "moeloom/train/lasting_memory.hpp"

namespace moeloom {

/// Bytes of one rank by what they are for: beside what lasts, what a step needs.
struct MemoryNeed : LastingMemory {
  double packed = 0;       // both faces of the experts
  double activations = 0;  // kept from forward to backward, a set a layer
  double buffers = 0;      // one set for all layers, the exchange and the reduction

  double total() const { return lasting() + packed + activations + buffers; }
};

/// One micro-batch of a rank, as its memory sees it.
struct MicroBatchShape {
  Index tokens = 0;
  Index sequence_length = 0;
  Index rows = 0;          // that dispatch brings to the rank's experts; even routing: tokens * top_k
  bool in_chunks = false;  // rows travel while experts compute
  Index threads = 1;
};

/// Both packed faces: a weight's bytes twice, bf16 once.
double packed_bytes(const std::vector<ParameterSpec>& specs, DType element);

/// What every layer keeps from its forward to its backward.
double activation_bytes(const ModelConfig& config, const MeshShape& mesh, DispatcherKind kind,
                        const MicroBatchShape& batch);

/// What all layers share: the workspaces, the residual stream, a stretch of logits, rows under way and the
/// scratch of the gradient reduction.
double buffer_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const MeshShape& mesh,
                    DispatcherKind kind, const MicroBatchShape& batch);

/// All of it. `packs`: the experts' products read packed faces of `element`.
MemoryNeed training_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                           const MeshShape& mesh, DispatcherKind kind, const MicroBatchShape& batch,
                           bool packs, DType element = DType::kF32);

}  // namespace moeloom
