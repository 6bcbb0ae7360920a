// Experts spread over the ranks of somebody's communicator, for a program that has its own model: the experts
// alone behind its own router, or a whole sparse block.
//
//   ExpertParallel over(ep, /*num_experts=*/64);
//   SparseBlock block(over, {router, d_router}, softmax_router(64, 8), {gate_up, down, d_gate_up, d_down});
//   block.forward(hidden_states, output);
//   block.backward(hidden_states, d_output, d_hidden_states);
//
// Weights are views of the caller's memory: fp32, each rank's own experts (experts_of(E, ep.size(), rank)),
// stacked. Results have the same bits at every ep that is a power of two; gradients of experts are those of
// all ranks' tokens, gradients of a router those of this rank's, to be summed over ranks.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/job/dispatcher_kind.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"
#include "moeloom/moe/routing/router_settings.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <memory>
#include <optional>
#include <span>

namespace moeloom {

struct ExpertParallelSettings {
  std::optional<KernelTable> kernels = {};        // none: every built-in kernel, grouped matmul among them
  std::optional<DispatcherKind> dispatcher = {};  // none: kShared in one node, else kAlltoall
  Index chunks = 0;  // whole experts, in which rows travel while others compute; 0: rows travel whole
};

/// How rows travel, and buffers that every layer of a rank shares. Layers of one use it one after the other.
class ExpertParallel {
 public:
  /// `ep` must outlive it. Collective over ep. Throws ConfigError for more ranks than experts, AgreedError
  /// where kShared is asked for and ranks cannot share memory.
  ExpertParallel(const Communicator& ep, Index num_experts, const ExpertParallelSettings& settings = {});
  ExpertParallel(ExpertParallel&&) noexcept;
  ~ExpertParallel();

  Index num_experts() const;
  DispatcherKind dispatcher() const;

 private:
  friend class ExpertBlock;
  friend class SparseBlock;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// This rank's experts and where their gradients go; gradients without rows: frozen, not computed.
struct ExpertViews {
  MatrixView gate_up;  // [e*2F, D], of each expert gate first
  MatrixView down;     // [e*D, F]
  MatrixView d_gate_up = {};
  MatrixView d_down = {};
  GatedActivation activation = {};
};

/// Experts for callers that choose them.
class ExpertBlock {
 public:
  /// What the views show must outlive it, as `over`. Throws ShapeError for views that do not fit each other
  /// or the number of experts.
  ExpertBlock(ExpertParallel& over, const ExpertViews& experts);
  ExpertBlock(ExpertBlock&&) noexcept;
  ~ExpertBlock();

  /// hidden_states [T, D] -> the sum over a token's slots of weight * expert, added to output [T, D].
  /// Collective over ep: also with no token. Throws ShapeError, CountError where ranks do not agree on rows.
  void forward(ConstMatrixView hidden_states, const ChosenExperts& chosen, MatrixView output);
  /// d_output [T, D] -> d_hidden_states [T, D], replaced; gradients are added to the views -> d_topk_weights
  /// [T, K], until the next backward of any layer. Once a forward. Collective over ep.
  std::span<const float> backward(ConstMatrixView d_output, MatrixView d_hidden_states);
  /// To be called when weights have changed: what was packed of them is packed again.
  void weights_changed();
  /// Rows that the last forward brought to this rank's experts.
  Index rows() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct RouterViews {
  MatrixView weight;         // [E, D], the same on every rank
  MatrixView d_weight = {};  // without rows: frozen
};

/// A router and the experts that it chooses.
class SparseBlock {
 public:
  /// aux_loss_coef: of the loss of balance (Fedus et al. 2021, eq. 4), over the tokens of all ranks of ep,
  /// whose gradient backward() adds. As ExpertBlock.
  SparseBlock(ExpertParallel& over, const RouterViews& router, const RouterSettings& settings,
              const ExpertViews& experts, double aux_loss_coef = 0);
  SparseBlock(SparseBlock&&) noexcept;
  ~SparseBlock();

  /// hidden_states [T, D] -> added to output [T, D] -> the loss of balance, K where it is even. As
  /// ExpertBlock::forward().
  double forward(ConstMatrixView hidden_states, MatrixView output);
  /// d_output [T, D] -> d_hidden_states [T, D], replaced; the router's gradient is added to as the experts'.
  /// Once a forward, with its hidden_states. Collective over ep.
  void backward(ConstMatrixView hidden_states, ConstMatrixView d_output, MatrixView d_hidden_states);
  void weights_changed();
  Index rows() const;
  /// What the router chose for the tokens of the last forward.
  ChosenExperts chosen() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
