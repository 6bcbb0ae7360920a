#include <utility>

#include "feed_forward/feed_forward.hpp"

namespace moeloom {

FeedForwardBranch::FeedForwardBranch(const MlpSpec& mlp, NormedInput input,
                                     std::optional<BranchOutput> output, const ParameterStore& store)
    : input_(std::move(input)), block_(MlpLayer(mlp, store)), output_(std::move(output)) {}

FeedForwardBranch::FeedForwardBranch(MoeLayer experts, NormedInput input,
                                     std::optional<NormedInput> router_input,
                                     std::optional<BranchOutput> output)
    : input_(std::move(input)),
      router_input_(std::move(router_input)),
      block_(std::move(experts)),
      output_(std::move(output)) {}

void FeedForwardBranch::normalise(const KernelTable& kernels, ConstMatrixView hidden) {
  input_.make(kernels, hidden);
  if (router_input_) router_input_->make(kernels, hidden);
}

void FeedForwardBranch::forward(const FeedForwardContext& c, ConstMatrixView hidden, MatrixView output,
                                RouterStatistics& statistics) {
  if (!output_) return add_output(c, hidden, output, statistics);
  const MatrixView own = output_->input(hidden.rows, hidden.cols);
  fill(own, 0.0f);
  add_output(c, hidden, own, statistics);
  output_->forward(c.kernels.rmsnorm, output);
}

void FeedForwardBranch::add_output(const FeedForwardContext& c, ConstMatrixView hidden, MatrixView output,
                                   RouterStatistics& statistics) {
  const ConstMatrixView input = input_.of(hidden);
  if (auto* moe = std::get_if<MoeLayer>(&block_)) {
    c.experts_needed();
    const MoeInput both{input, router_input_ ? router_input_->of(hidden) : input};
    moe->forward(c.moe, both, output, statistics);
  } else {
    std::get<MlpLayer>(block_).forward(c.kernels, input, output, c.workspace.mlp,
                                       c.recompute != Recompute::kNone);
  }
}

void FeedForwardBranch::backward(const FeedForwardContext& c, const RouterLossGradient& router_losses,
                                 ConstMatrixView hidden, ConstMatrixView d_output, MatrixView d_hidden) {
  ConstMatrixView d_own = d_output;
  if (output_) {
    c.workspace.d_output.reshape_uninitialised(d_output.rows, d_output.cols);
    output_->backward(c.kernels.rmsnorm, d_output, c.workspace.d_output);
    d_own = c.workspace.d_output;
  }
  if (std::holds_alternative<MoeLayer>(block_))
    backward_experts(c, router_losses, hidden, d_own, d_hidden);
  else
    std::get<MlpLayer>(block_).backward(c.kernels, input_.of(hidden), d_own, d_hidden, c.workspace.mlp,
                                        c.recompute != Recompute::kNone);
  input_.backward(c.kernels, hidden, d_hidden);
  if (!router_input_) return;
  router_input_->backward(c.kernels, hidden, c.workspace.d_router);
  add(c.workspace.d_router, d_hidden);
}

void FeedForwardBranch::backward_experts(const FeedForwardContext& c, const RouterLossGradient& router_losses,
                                         ConstMatrixView hidden, ConstMatrixView d_output,
                                         MatrixView d_input) {
  auto& moe = std::get<MoeLayer>(block_);
  if (router_input_) {
    Matrix& d_router = c.workspace.d_router;
    d_router.reshape_uninitialised(hidden.rows, hidden.cols);
    moe.backward(c.moe, {input_.of(hidden), router_input_->of(hidden)}, router_losses, d_output,
                 {d_input, d_router});
  } else {
    moe.backward(c.moe, input_.of(hidden), router_losses, d_output, d_input);
  }
  c.experts_done();
  c.clock.enter(Phase::kDense);
}

}  // namespace moeloom
