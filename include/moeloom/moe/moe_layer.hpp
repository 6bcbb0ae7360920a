// One sparse block: router, plan, dispatch, experts, combine, and the shared expert of the families that have
// one, forward and backward.
#pragma once

#include "moeloom/base/phase_clock.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"
#include "moeloom/moe/experts/node_pool.hpp"
#include "moeloom/moe/experts/shared_expert.hpp"
#include "moeloom/moe/router.hpp"
#include "moeloom/moe/router_losses.hpp"

#include <optional>
#include <span>

namespace moeloom {

struct MoeWeights {
  MatrixView router;    // [E, D]
  MatrixView d_router;  // without rows: frozen, not computed
  ExpertShard experts;
  std::optional<SharedExpertWeights> shared = std::nullopt;
};

/// What a forward leaves for its backward and for those who look in from outside.
struct MoeActivations {
  Matrix router_logits;  // [T, E]; backward turns it into their gradient
  Routing routing;
  DispatchPlan plan;
  ExpertActivations experts;
};

/// Buffers shared by all layers of a rank.
struct MoeWorkspace {
  ExpertWorkspace experts;
  SharedExpertWorkspace shared;
  RowBuffer d_rows;                   // [R, D]
  std::vector<float> d_topk_weights;  // [T, K]
  std::optional<NodePool> pool;       // of the ranks that run each other's experts
};

class MoeLayer {
 public:
  MoeLayer(MoeWeights weights, RouterSettings router);

  /// hidden_states [T, D] -> the outputs of the chosen experts and the shared one, added to `output` [T, D]
  /// (the residual stream). version: of the weights; is_real [T] or empty. Adds the layer to `statistics`.
  /// Collective over ep.
  void forward(const KernelTable& kernels, Dispatcher& dispatcher, ConstMatrixView hidden_states,
               std::span<const std::uint8_t> is_real, std::uint64_t version, MatrixView output,
               RouterStatistics& statistics, MoeWorkspace& workspace, PhaseClock& clock);
  /// d_output [T, D] -> d_hidden_states [T, D], replaced. The router's and the shared expert's gradients
  /// are added to, the experts' are added to or written. Collective over ep.
  void backward(const KernelTable& kernels, Dispatcher& dispatcher, ConstMatrixView hidden_states,
                std::span<const std::uint8_t> is_real, const RouterLossGradient& router_losses,
                ConstMatrixView d_output, MatrixView d_hidden_states, MoeWorkspace& workspace,
                PhaseClock& clock, Write expert_gradients = Write::kAdd);

  const MoeActivations& activations() const { return saved_; }
  const PackedExperts& packed() const { return packed_; }

 private:
  void run_experts(const KernelTable& kernels, Dispatcher& dispatcher, const RoundTrip& trip,
                   MoeWorkspace& workspace, PhaseClock& clock);
  void run_experts_backward(const KernelTable& kernels, Dispatcher& dispatcher, const RoundTrip& trip,
                            MoeWorkspace& workspace, Write gradients, PhaseClock& clock);
  ExpertPass expert_pass(const KernelTable& kernels, const Dispatcher& dispatcher, MoeWorkspace& workspace,
                         PhaseClock& clock);

  MoeWeights weights_;
  RouterSettings router_;
  PackedExperts packed_;
  MoeActivations saved_;
  std::optional<SharedExpert> shared_;
};

}  // namespace moeloom
