#include "model/feed_forward/feed_forward.hpp"

#include <utility>

#include "feed_forward/moe_of_store.hpp"

namespace moeloom {
namespace {

/// What both read where the layer's halves stand side by side, else the half's own.
const std::optional<NormSpec>& norm_of(const LayerSpec& spec) {
  return spec.parallel ? spec.mixer_norm : spec.feed_forward_norm;
}

FeedForwardBranch branch_of(const MlpSpec& spec, const std::optional<NormSpec>& norm,
                            std::optional<BranchOutput> output, const ParameterStore& store) {
  return {spec, NormedInput(norm, store), std::move(output), store};
}

FeedForwardBranch branch_of(MoeLayer experts, const MoeSpec& spec, const std::optional<NormSpec>& norm,
                            std::optional<BranchOutput> output, const ParameterStore& store) {
  std::optional<NormedInput> router;
  if (spec.router_norm) router.emplace(spec.router_norm->norm, store, spec.router_norm->scale);
  return {std::move(experts), NormedInput(norm, store), std::move(router), std::move(output)};
}

}  // namespace

FeedForward::FeedForward(const LayerSpec& spec, const ParameterStore& store, Index layer,
                         const RoutingSettings& routing) {
  const auto experts = [&] { return moe_of(*spec.moe, store, layer, routing); };
  std::optional<BranchOutput> output =
      BranchOutput::of(store, spec.feed_forward_output_norm, spec.residual_scale);
  if (!spec.side_by_side) {
    if (spec.moe)
      branches_.push_back(branch_of(experts(), *spec.moe, norm_of(spec), std::move(output), store));
    else
      branches_.push_back(branch_of(spec.mlp.value(), norm_of(spec), std::move(output), store));
    return;
  }
  const SideBySideNorms& norms = *spec.side_by_side;
  branches_.push_back(
      branch_of(spec.mlp.value(), norm_of(spec), BranchOutput::of(store, norms.mlp_output, 1), store));
  branches_.push_back(branch_of(experts(), *spec.moe, norms.experts_input,
                                BranchOutput::of(store, norms.experts_output, 1), store));
  output_ = std::move(output);
}

void FeedForward::forward(const FeedForwardContext& c, ConstMatrixView hidden, MatrixView output,
                          RouterStatistics& statistics) {
  MatrixView sum = output;
  if (output_) {
    sum = output_->input(output.rows, output.cols);
    fill(sum, 0.0f);
  }
  for (FeedForwardBranch& branch : branches_) {
    branch.normalise(c.kernels, hidden);
    branch.forward(c, hidden, sum, statistics);
  }
  if (output_) output_->forward(c.kernels.rmsnorm, output);
}

void FeedForward::backward(const FeedForwardContext& c, const RouterLossGradient& router_losses,
                           ConstMatrixView hidden, ConstMatrixView d_output, MatrixView d_hidden) {
  if (c.recompute != Recompute::kNone)
    for (FeedForwardBranch& branch : branches_) branch.normalise(c.kernels, hidden);
  ConstMatrixView d_sum = d_output;
  if (output_) {
    c.workspace.d_sum.reshape_uninitialised(d_output.rows, d_output.cols);
    output_->backward(c.kernels.rmsnorm, d_output, c.workspace.d_sum);
    d_sum = c.workspace.d_sum;
  }
  branches_.back().backward(c, router_losses, hidden, d_sum, d_hidden);
  if (branches_.size() == 1) return;
  c.workspace.d_input.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  branches_.front().backward(c, router_losses, hidden, d_sum, c.workspace.d_input);
  add(c.workspace.d_input, d_hidden);
}

const MoeLayer* FeedForward::moe() const {
  return branches_.back().moe();
}

template <typename Visit>
void FeedForward::for_inputs(const Visit& visit) {
  std::size_t i = 0;
  for (FeedForwardBranch& branch : branches_) {
    visit(branch.input(), i++);
    if (branch.router_input()) visit(*branch.router_input(), i++);
  }
}

void swap(FeedForward& half, FeedForwardActivations& other) {
  half.for_inputs([&](NormedInput& input, std::size_t i) { swap(input, other[i]); });
}

void swap(FeedForward& half, FeedForwardNormed& other) {
  half.for_inputs([&](NormedInput& input, std::size_t i) { swap(input, other[i]); });
}

Index FeedForward::inputs_of(const LayerSpec& layer) {
  return (norm_of(layer) ? 1 : 0) + (layer.side_by_side ? 1 : 0) +
         (layer.moe && layer.moe->router_norm ? 1 : 0);
}

double FeedForward::bytes_of(const LayerSpec& layer, Index tokens) {
  const Index d = layer.hidden_size;
  const double output =
      BranchOutput::bytes_of(layer.feed_forward_output_norm, layer.residual_scale, tokens, d);
  if (!layer.side_by_side) return output;
  return output + BranchOutput::bytes_of(layer.side_by_side->mlp_output, 1, tokens, d) +
         BranchOutput::bytes_of(layer.side_by_side->experts_output, 1, tokens, d);
}

double FeedForwardWorkspace::bytes_of(const LayerSpec& layer, Index tokens) {
  const auto rows = [&](bool there) { return there ? layer.hidden_size : 0; };
  const bool side_by_side = layer.side_by_side.has_value();
  const bool behind = layer.feed_forward_output_norm || layer.residual_scale != 1;
  return rows_bytes(tokens, {rows(behind || side_by_side), rows(behind && side_by_side), rows(side_by_side),
                             rows(layer.moe && layer.moe->router_norm)});
}

}  // namespace moeloom
