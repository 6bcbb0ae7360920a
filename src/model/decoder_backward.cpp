// A micro-batch of training: forward, loss, and backward through every layer.
#include "model/decoder.hpp"
#include "model/loss.hpp"

namespace moeloom {

void tell_of_part(PhaseClock& clock, Phase phase, const std::function<void(Index)>& hook, Index part) {
  if (!hook) return;
  clock.enter(phase);
  hook(part);
}

template <typename RouterLosses>
void Decoder::backward(const Batch& batch, RouterLosses router_losses, const PartHooks& hooks) {
  const auto done = [&](Index part) { tell_of_part(clock_, Phase::kReduce, hooks.gradients_done, part); };
  clock_.enter(Phase::kDense);
  final_norm_.backward(kernels_.rmsnorm, d_hidden_, hidden_, final_inv_rms_, d_hidden_);
  done(kHeadPart);
  if (per_layer_) per_layer_->start_backward();
  for (Index layer = std::ssize(layers_) - 1; layer >= 0; --layer) {
    const bool is_sparse = sparse_place_[at(layer)] >= 0;
    clock_.enter_layer(layer, true);
    store_.read_ahead(layer - 1);
    const auto experts_are_done = [&] { done(experts_part(layer)); };
    LayerContext layer_context = context(batch, layer, true);
    layer_context.experts_done = Interlude(experts_are_done);
    layers_[at(layer)].backward(layer_context, is_sparse ? router_losses(layer) : RouterLossGradient{},
                                d_hidden_);
    if (layer > 0) store_.leave(layer);  // the next forward begins with the first
    done(layer);
  }
  clock_.enter_layer(-1, true);
  clock_.enter(Phase::kEmbed);
  if (per_layer_) per_layer_->backward(kernels_, batch.input_ids, layers_.front().input(), d_hidden_);
  add_embedding_gradient(batch);
  done(kEmbeddingPart);
}

void Decoder::add_embedding_gradient(const Batch& batch) {
  if (embedding_.grad.rows == 0) return;
  ExactSums* const sums = store_.sums(Placement::kWorld);
  for_each_leaf(sums, batch.tokens(), [&](Index first, Index rows) {
    for (Index t = first; t < first + rows; ++t) {
      if (batch.input_ids[at(t)] == padding_row_) continue;
      float* gradient = embedding_.grad.row(batch.input_ids[at(t)]);
      const float* d = d_hidden_.row(t);
      for (Index j = 0; j < config_.hidden_size; ++j) gradient[j] += d[j] * embedding_scale_;
    }
    if (sums == nullptr) return;
    // Of the rows of its ids alone; taken again, a row is zeros.
    for (Index t = first; t < first + rows; ++t)
      sums->take(embedding_.grad.rows_from(batch.input_ids[at(t)], 1));
  });
}

MicroBatchLosses Decoder::forward_backward(const Batch& batch, const LossScales& scales,
                                           const ChosenCounts* step_counts, const PartHooks& hooks) {
  RouterStatistics statistics = no_statistics(batch);
  run_layers(batch, true, statistics, hooks);
  clock_.enter(Phase::kLoss);
  d_hidden_.reshape_uninitialised(hidden_.rows(), hidden_.cols());
  const double nll_sum = head_loss_of(batch, static_cast<float>(scales.lm));
  const MicroBatchLosses losses = sum_over_world(nll_sum, batch.counted_targets(), std::move(statistics));
  ChosenCounts global = losses.routers.chosen();
  if (scales.aux != 0 || scales.z != 0) global.sum_over(mesh_.world());
  const auto router_losses = [&](Index layer) {
    return router_loss_gradient(layer, losses.routers, global, step_counts ? *step_counts : global, balance_,
                                scales.aux, scales.z,
                                {.micro_batches = scales.micro_batches, .tokens = scales.step_tokens});
  };
  backward(batch, router_losses, hooks);
  store_.mark_gradients_written();
  clock_.enter(Phase::kOther);
  return losses;
}

}  // namespace moeloom
