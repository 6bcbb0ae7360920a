// Experts spread over the ranks of somebody's communicator, for a program that has its own model: the experts
// alone behind its own router, or a whole sparse block.
//
//   ExpertParallel over(ep, /*num_experts=*/64);
//   SparseBlock block(over, {router, d_router}, softmax_router(64, 8), {gate_up, down, d_gate_up, d_down});
//   block.forward(hidden_states, output);
//   block.backward(hidden_states, d_output, d_hidden_states);
//
// Weights are views of the caller's memory: fp32, each rank's own experts (experts_of(E, ep.size(), rank)),
// stacked. A rank's outputs depend on its tokens alone, not on ep: they have the same bits wherever it has as
// many of them. Gradients of experts are those of all ranks' tokens, gradients of a router those of this
// rank's, to be summed over ranks.
//
// All ranks of ep make these objects and call their functions in the same order, on the thread that MPI calls
// main. What is wrong with shapes, choices and settings of any rank is compared first, and thrown on all of
// them (AgreedError); after any other exception, of one rank alone, the others may wait for it: the job has
// to end (abort_all_ranks).
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

/// The same on every rank of ep.
struct ExpertParallelSettings {
  std::optional<KernelTable> kernels = {};        // none: every built-in kernel, grouped matmul among them
  std::optional<DispatcherKind> dispatcher = {};  // none: kShared in one node, else kAlltoall
  /// Parts, of whole experts each, in which a layer's rows travel while other experts compute; 0: rows travel
  /// whole, and all experts wait for them. The bits are the same.
  Index chunks = 0;
  /// What is packed of weights is made anew in each forward, because they may have changed; true: only after
  /// weights_changed(), as for several micro-batches of a step.
  bool weights_stay = false;
};

/// How rows travel, and buffers that every layer of a rank shares: layers use it one after the other, each
/// forward and each backward as a whole.
class ExpertParallel {
 public:
  /// `ep` must outlive it, and stay where it is. Collective over ep. Throws ConfigError, on every rank, for
  /// no experts or fewer than ranks; AgreedError where kShared is asked for, or kHierarchical, and ranks
  /// cannot share memory; MpiError.
  ExpertParallel(const Communicator& ep, Index num_experts, const ExpertParallelSettings& settings = {});
  ExpertParallel(ExpertParallel&&) noexcept;
  ~ExpertParallel();

  Index num_experts() const;
  /// The one that runs.
  DispatcherKind dispatcher() const;

 private:
  friend class ExpertBlock;
  friend class SparseBlock;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// This rank's e experts and where their gradients go, which are added to; gradients without rows: frozen,
/// not computed. D is gate_up's columns, F down's.
struct ExpertViews {
  MatrixView gate_up;  // [e*2F, D]: of each expert the F rows of gate, then those of up
  MatrixView down;     // [e*D, F]
  MatrixView d_gate_up = {};
  MatrixView d_down = {};
  GatedActivation activation = {};
};

/// Experts for callers that choose them: one layer's.
class ExpertBlock {
 public:
  /// `over`, and what the views show, must outlive it. Collective over ep. Throws AgreedError for views that
  /// do not fit each other or the number of experts.
  ExpertBlock(ExpertParallel& over, const ExpertViews& experts);
  ExpertBlock(ExpertBlock&&) noexcept;
  ~ExpertBlock();

  /// hidden_states [T, D] -> the sum over a token's slots of weight * expert, added to output [T, D]. T may
  /// differ from rank to rank and be 0; `chosen`, with K the same on every rank, is copied. Collective over
  /// ep. Throws AgreedError for shapes and for experts outside [0, E) other than kNoExpert, CorruptError
  /// where ranks do not agree about rows, MpiError: on the ranks that meet it.
  void forward(ConstMatrixView hidden_states, const ChosenExperts& chosen, MatrixView output);
  /// Of the last forward: d_output [T, D] -> d_hidden_states [T, D], replaced, and gradients of weights,
  /// added to the views. Returns d_topk_weights [T, K], which stand until the next backward of any layer of
  /// `over`. Collective over ep. Throws as forward(), also for a second backward of one forward.
  std::span<const float> backward(ConstMatrixView d_output, MatrixView d_hidden_states);
  /// With weights_stay: they have changed, and what was packed of them is packed again. No collective.
  void weights_changed();
  /// R: rows that the last forward brought to this rank's experts.
  Index rows() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// A router's weight and where its gradient goes, which is added to.
struct RouterViews {
  MatrixView weight;         // [E, D], the same on every rank
  MatrixView d_weight = {};  // without rows: frozen
};

/// A router and the experts that it chooses: one layer's.
class SparseBlock {
 public:
  /// As ExpertBlock's; what the views and the spans of `settings` show must outlive it. aux_loss_coef: what
  /// the gradient of the loss of balance is multiplied by (Fedus et al. 2021, eq. 4, over the tokens of all
  /// ranks of ep), which backward() adds; 0: none. Throws AgreedError for settings that check_router()
  /// refuses, a hash router, and where router, settings and `over` have different numbers of experts.
  SparseBlock(ExpertParallel& over, const RouterViews& router, const RouterSettings& settings,
              const ExpertViews& experts, double aux_loss_coef = 0);
  SparseBlock(SparseBlock&&) noexcept;
  ~SparseBlock();

  /// As ExpertBlock::forward(), with the router's choice. Returns the loss of balance without its
  /// coefficient, the same on every rank: K where load is even, 0 without a token. Collective over ep.
  double forward(ConstMatrixView hidden_states, MatrixView output);
  /// As ExpertBlock::backward(), and the router's gradient of this rank's tokens is added to d_weight.
  /// hidden_states: those of the forward. Collective over ep.
  void backward(ConstMatrixView hidden_states, ConstMatrixView d_output, MatrixView d_hidden_states);
  /// As ExpertBlock's.
  void weights_changed();
  Index rows() const;
  /// What the router chose for the tokens of the last forward; stands until the next.
  ChosenExperts chosen() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
