// The whole decoder on one rank's tokens: embedding, layers, final norm, head; forward, loss, backward.
#pragma once

#include "base/phase_clock.hpp"
#include "model/decoder_layer.hpp"
#include "model/loss.hpp"
#include "model/per_layer/per_layer_embedding.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/model/batch.hpp"
#include "moeloom/model/hf/config.hpp"

#include <deque>
#include <functional>
#include <optional>

namespace moeloom {

/// What one micro-batch adds to the loss that is minimised:
/// lm * sum of -log p + (aux * aux_loss + z * z_loss) / micro_batches.
struct LossScales {
  double lm = 0;   // 1 / counted targets of the whole global batch
  double aux = 0;  // coefficients of a whole step
  double z = 0;
  Index micro_batches = 1;  // a step: each brings so much less
  /// Of the whole step without padding, which a mean over all of its tokens divides by: the z loss, and an
  /// aux loss over the global batch. 0: as many in every micro-batch as in this one.
  Index step_tokens = 0;
};

struct MicroBatchLosses {
  double nll_sum = 0;  // -log p summed over counted targets, of the whole world
  Index counted_targets = 0;
  RouterStatistics routers;  // of this rank's tokens; aux_loss() and z_loss() are of their sum over the world
};

/// Told of the parts (part_of_backward) of a micro-batch on this rank.
struct PartHooks {
  std::function<void(Index part)> weights_needed = {};  // before a forward reads them
  std::function<void(Index part)> gradients_done = {};  // after a backward has completed them
};

/// hook(part), in that phase; nothing without a hook.
void tell_of_part(PhaseClock& clock, Phase phase, const std::function<void(Index)>& hook, Index part);

/// Packed faces of the experts on this rank.
struct ComputeWeights {
  Index packings = 0;  // since the start: two a layer and weight version
  Index bytes = 0;     // held now
};

class Decoder {
 public:
  /// The store and the mesh must outlive it. Throws ShapeError if the store is not of this config.
  /// dispatcher: that of the mesh's ep ranks; the store's experts lie in its weights_memory().
  /// keeping: of it what layers keep for backward.
  Decoder(const ModelConfig& config, ParameterStore& store, const Mesh& mesh, KernelTable kernels,
          const DispatcherSettings& dispatcher = {}, const RoutingSettings& routing = {},
          const Keeping& keeping = {});

  /// Adds the gradients of this rank's tokens to the store. Collective over the world: also with no token.
  /// step_counts: what routers choose in all micro-batches of the step, for an aux loss over the global batch
  /// where it has several; null: this one's.
  MicroBatchLosses forward_backward(const Batch& batch, const LossScales& scales,
                                    const ChosenCounts* step_counts = nullptr, const PartHooks& hooks = {});
  /// What routers choose in training, over the world: a forward alone. Collective over the world.
  ChosenCounts count_chosen(const Batch& batch);
  /// Losses alone, as evaluation routes. Collective over the world.
  MicroBatchLosses evaluate(const Batch& batch);
  /// -log p of each target [T], as evaluate() sums them; 0 where a token has none. Collective as logits().
  std::vector<double> token_losses(const Batch& batch);
  /// logits [T, V] of every token. Collective over ep, and with a row budget over the world.
  Matrix logits(const Batch& batch);
  /// logits [1, V] of what follows `input_ids`, the next tokens of the one sequence in the cache; ranks
  /// without the sequence pass none and get [0, V]. Collective over ep. Throws ShapeError when `capacity`
  /// positions are full.
  Matrix next_logits(std::span<const std::int32_t> input_ids);
  /// Empties the cache and makes room for `capacity` positions.
  void start_sequence(Index capacity);
  /// As start_sequence, but keeps as much of what was read as is the beginning of `input_ids` and ends before
  /// its last token: so many tokens need not be read again. 0 where a window has dropped what is needed, and
  /// where a recurrent state stands behind another token.
  Index resume_sequence(std::span<const std::int32_t> input_ids, Index capacity);
  /// Held for keys, values and recurrent states.
  Index cache_bytes() const;

  /// The kernels from the next forward on; between a forward and its backward there is no other table.
  void use(const KernelTable& kernels) { kernels_ = kernels; }

  const ModelConfig& config() const { return config_; }
  const BalanceSettings& balance() const { return balance_; }
  const std::deque<DecoderLayer>& layers() const { return layers_; }
  /// The first layer whose output in the last forward is not finite on this rank; layers() for the final
  /// norm.
  std::optional<Index> first_non_finite_layer() const;
  ComputeWeights compute_weights() const;
  DispatchTraffic dispatch_traffic() const { return dispatcher_.traffic(); }
  /// Of each layer; none without rebalancing.
  std::vector<RebalanceCounts> rebalance_counts() const;
  /// That experts of a layer had at once on this rank, in any forward so far.
  Index most_rows() const;
  /// Held for replicas: their weights in every layer, and the sums of branches of gradients.
  Index replica_bytes() const;
  PhaseClock& clock() { return clock_; }
  /// Of what it holds beside its layers and their workspace, in training.
  static double bytes_of(const ModelConfig& config, const Job& job);

 private:
  void embed(const Batch& batch);
  void run_layers(const Batch& batch, bool training, RouterStatistics& statistics,
                  const PartHooks& hooks = {});
  void normalise();
  MicroBatchLosses sum_over_world(double nll_sum, Index counted, RouterStatistics statistics);
  /// router_losses(layer) -> RouterLossGradient.
  template <typename RouterLosses>
  void backward(const Batch& batch, RouterLosses router_losses, const PartHooks& hooks);
  LayerContext context(const Batch& batch, Index layer, bool training);
  PerLayerPart per_layer_part(Index layer, bool training);
  RouterStatistics no_statistics(const Batch& batch) const;
  /// Where sums are exact: what a leaf is of this batch. In training whole leaves of the step, else
  /// sequences.
  Index tokens_of_leaf(const Batch& batch, bool training) const;
  void set_leaves(const Batch& batch, bool training);
  /// Of the head, leaf by leaf where sums are exact. backward: what is differentiated, scale; none: the loss
  /// alone.
  double head_loss_of(const Batch& batch, std::optional<float> backward);
  void add_embedding_gradient(const Batch& batch);
  void prepare_positions(const Batch& batch, Index first);
  Index first_rope_row(Index sequence_length) const;  // of longrope's table, 0 in others
  /// How many tokens at the beginning of the sequence in the cache, and of `input_ids`, are the same.
  Index shared_tokens(std::span<const std::int32_t> input_ids) const;
  /// Whether a sequence that grows so turns its keys in another way (longrope): what is cached is then void.
  bool turns_anew(Index before, Index now) const;

  const ModelConfig config_;
  ParameterStore& store_;
  const Mesh& mesh_;
  KernelTable kernels_;
  Linear embedding_;
  HeadWeights head_;
  Norm final_norm_;
  std::optional<PerLayerEmbedding> per_layer_;
  std::deque<DecoderLayer> layers_;
  std::vector<Index> sparse_place_;  // of each layer among the sparse ones; -1: dense
  BalanceSettings balance_;
  Index row_budget_;
  Keeping keeping_;
  Dispatcher dispatcher_;
  ExpertRunner experts_;
  std::vector<RopeSettings> rope_settings_;
  std::vector<RopeTable> ropes_;  // one for each of them
  float embedding_scale_;
  Index padding_row_;                   // -1: there is none
  std::vector<Index> segment_offsets_;  // of the last batch, padding at the left apart
  std::vector<std::int32_t> position_ids_;
  std::vector<std::int32_t> rope_rows_;
  std::vector<LentKeys> lent_;          // of each layer
  std::vector<MixerCache> cache_;       // one a layer
  std::vector<std::int32_t> sequence_;  // the tokens since start_sequence
  Index cached_ = 0;                    // of them
  Index capacity_ = 0;                  // of the sequence
  Matrix hidden_;                       // [T, D], the residual stream
  Matrix final_;                        // [T, D]
  Matrix d_hidden_;                     // [T, D]
  std::vector<float> final_inv_rms_;    // [T]
  DecoderWorkspace workspace_;
  PhaseClock clock_;
};

}  // namespace moeloom
