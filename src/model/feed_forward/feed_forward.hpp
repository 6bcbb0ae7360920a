// The second half of a decoder layer: an MLP or experts, or both side by side, each behind a norm and before
// another, if there are any.
//
//   out_norm(f(norm(h)))                                           f an MLP or experts
//   out_norm(out_norm_1(mlp(norm_1(h))) + out_norm_2(experts(norm_2(h))))   side by side (Gemma4)
//
// The router of experts may read yet another norm of h.
#pragma once

#include "base/interlude.hpp"
#include "model/feed_forward/mlp_layer.hpp"
#include "model/feed_forward/normed_input.hpp"
#include "model/parts/branch_output.hpp"
#include "moe/moe_layer.hpp"
#include "moeloom/job/recompute.hpp"

#include <array>
#include <variant>
#include <vector>

namespace moeloom {

/// The most norms that the half reads: of the MLP, of experts and of their router.
inline constexpr Index kFeedForwardInputs = 3;
/// What they give, which costs little to make again.
using FeedForwardNormed = std::array<Matrix, kFeedForwardInputs>;
/// The same with what their backward needs besides.
using FeedForwardActivations = std::array<KeptNorm, kFeedForwardInputs>;

/// Buffers that all layers share.
struct FeedForwardWorkspace {
  MlpWorkspace mlp;
  MoeWorkspace moe;
  Matrix d_sum;     // [T, D], where something stands between what is side by side and the residual
  Matrix d_output;  // [T, D], where something stands behind an MLP or experts
  Matrix d_input;   // [T, D], of the second of two side by side
  Matrix d_router;  // [T, D], where a router reads something else

  /// Without those of MLPs and experts.
  static double bytes_of(const LayerSpec& layer, Index tokens);
};

/// What every one of a forward or backward is given.
struct FeedForwardContext {
  const KernelTable& kernels;
  const MoeContext& moe;
  FeedForwardWorkspace& workspace;
  PhaseClock& clock;
  Recompute recompute = Recompute::kNone;  // moe.recompute says the same
  Interlude experts_needed = {};
  Interlude experts_done = {};
};

/// An MLP or experts between their norms.
class FeedForwardBranch {
 public:
  FeedForwardBranch(const MlpSpec& mlp, NormedInput input, std::optional<BranchOutput> output,
                    const ParameterStore& store);
  FeedForwardBranch(MoeLayer experts, NormedInput input, std::optional<NormedInput> router_input,
                    std::optional<BranchOutput> output);

  /// What it reads of the residual stream `hidden` [T, D].
  void normalise(const KernelTable& kernels, ConstMatrixView hidden);
  /// After normalise(): adds to `output` [T, D]. Collective over ep.
  void forward(const FeedForwardContext& context, ConstMatrixView hidden, MatrixView output,
               RouterStatistics& statistics);
  /// d_output [T, D] -> d_hidden [T, D], replaced. Collective over ep.
  void backward(const FeedForwardContext& context, const RouterLossGradient& router_losses,
                ConstMatrixView hidden, ConstMatrixView d_output, MatrixView d_hidden);

  /// Null for an MLP.
  const MoeLayer* moe() const { return std::get_if<MoeLayer>(&block_); }
  NormedInput& input() { return input_; }
  std::optional<NormedInput>& router_input() { return router_input_; }

 private:
  void add_output(const FeedForwardContext& context, ConstMatrixView hidden, MatrixView output,
                  RouterStatistics& statistics);
  void backward_experts(const FeedForwardContext& context, const RouterLossGradient& router_losses,
                        ConstMatrixView hidden, ConstMatrixView d_output, MatrixView d_input);

  NormedInput input_;
  std::optional<NormedInput> router_input_;
  std::variant<MoeLayer, MlpLayer> block_;
  std::optional<BranchOutput> output_;
};

class FeedForward {
 public:
  /// `layer`: its number. The store must outlive it.
  FeedForward(const LayerSpec& spec, const ParameterStore& store, Index layer,
              const RoutingSettings& routing);

  /// hidden [T, D], a copy of the residual stream -> what belongs to that, added to `output` [T, D].
  /// Collective over ep.
  void forward(const FeedForwardContext& context, ConstMatrixView hidden, MatrixView output,
               RouterStatistics& statistics);
  /// Of the last forward: d_output [T, D] -> d_hidden [T, D], replaced. Collective over ep.
  void backward(const FeedForwardContext& context, const RouterLossGradient& router_losses,
                ConstMatrixView hidden, ConstMatrixView d_output, MatrixView d_hidden);

  /// Null where it has none.
  const MoeLayer* moe() const;
  /// Norms that it reads.
  static Index inputs_of(const LayerSpec& layer);
  /// Of what it keeps, whatever is made again.
  static double bytes_of(const LayerSpec& layer, Index tokens);

  friend void swap(FeedForward& half, FeedForwardActivations& other);
  friend void swap(FeedForward& half, FeedForwardNormed& other);

 private:
  /// visit(input, its number) of each that is read.
  template <typename Visit>
  void for_inputs(const Visit& visit);

  std::vector<FeedForwardBranch> branches_;
  std::optional<BranchOutput> output_;  // of branches side by side
};

}  // namespace moeloom
