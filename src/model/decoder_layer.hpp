// One decoder layer: a token mixer, then experts (sparse) or an MLP (dense) or both, each perhaps after a
// norm, and beside a residual; or both halves at once. Perhaps a per-layer input and a factor behind them.
#pragma once

#include "model/feed_forward/feed_forward.hpp"
#include "model/mixer/mixer_layer.hpp"
#include "model/per_layer/per_layer_input.hpp"

#include <optional>
#include <span>

namespace moeloom {

/// What a layer keeps from forward to backward beside its input, its feed-forward half and what its
/// BranchOutputs keep.
struct LayerActivations {
  MixerActivations mixer;
  Matrix middle;
  FeedForwardActivations feed_forward;

  /// Beside the mixer's own, and without what norms give.
  static double bytes_of(const LayerSpec& layer, Index tokens) {
    const Index norms = (layer.mixer_norm ? 1 : 0) + FeedForward::inputs_of(layer);
    return rows_bytes(tokens, {layer.hidden_size}) + static_cast<double>(norms) * rows_bytes(tokens, {1});
  }
};

/// What norms give, which costs little to make again.
struct LayerNormed {
  RowMemory mixer;
  FeedForwardNormed feed_forward;

  static double bytes_of(const LayerSpec& layer, Index tokens) {
    const Index norms = (layer.mixer_norm ? 1 : 0) + FeedForward::inputs_of(layer);
    return static_cast<double>(norms) * rows_bytes(tokens, {layer.hidden_size});
  }
};

/// Buffers that all layers share.
struct DecoderWorkspace {
  MixerWorkspace mixer;
  FeedForwardWorkspace feed_forward;
  PerLayerInputWorkspace per_layer_input;
  Matrix d_middle;  // [T, D], of what the feed-forward half read
  // Where backward makes experts again:
  LayerNormed normed;
  // Where it makes blocks again:
  LayerActivations activations;
  Matrix hidden;  // [T, D], the residual stream

  /// Without those of mixers, MLPs and experts, but with what stands around them.
  static double bytes_of(const LayerSpec& layer, Index tokens);
};

/// A layer's part of per-layer embeddings, [T, P]; empty in models without.
struct PerLayerPart {
  ConstMatrixView value;
  MatrixView gradient;  // in a backward
};

/// What every layer of one forward or backward is given.
struct LayerContext {
  const KernelTable& kernels;
  MixerContext mixer;
  MoeContext moe;
  DecoderWorkspace& workspace;
  PhaseClock& clock;
  Recompute recompute = Recompute::kNone;  // moe.recompute says the same
  Interlude experts_needed = {};           // before a forward reads their weights
  Interlude experts_done = {};             // after a backward has completed their gradients
  PerLayerPart per_layer = {};
};

class DecoderLayer {
 public:
  /// `layer`: its number.
  DecoderLayer(const LayerSpec& spec, const ParameterStore& store, Index layer = 0,
               const RoutingSettings& routing = {});

  /// hidden [T, D] in place; with a cache the rows are the next positions of one sequence. Collective over
  /// ep.
  void forward(const LayerContext& context, MixerCache* cache, MatrixView hidden,
               RouterStatistics& statistics);
  /// d_hidden [T, D] in place. Collective over ep.
  void backward(const LayerContext& context, const RouterLossGradient& router_losses, MatrixView d_hidden);

  MixerCache make_cache(Index capacity) const { return mixer_.make_cache(capacity); }
  /// Null for a dense layer.
  const MoeLayer* moe() const { return feed_forward_.moe(); }
  /// [T, D], the residual stream as it came to the last forward.
  const Matrix& input() const { return mixer_.input(); }
  /// Of what it keeps, whatever is made again: its input, and what BranchOutputs keep.
  static double bytes_of(const LayerSpec& layer, Index tokens);

  friend void swap(DecoderLayer& layer, LayerActivations& other);
  friend void swap(DecoderLayer& layer, LayerNormed& other);

 private:
  /// Of the last forward what comes before its feed-forward half, from the input.
  void make_again(const LayerContext& context);
  /// The residual stream as the feed-forward half reads it.
  void keep_middle(ConstMatrixView hidden);

  MixerLayer mixer_;
  FeedForward feed_forward_;
  bool parallel_;  // both halves read the layer's input
  std::optional<PerLayerInput> per_layer_input_;
  std::span<const float> scalar_;  // [1] or empty
  Matrix middle_;                  // [T, D]
};

}  // namespace moeloom
