// One decoder layer: a token mixer, then experts (sparse) or an MLP (dense), each perhaps after a norm, and
// beside a residual.
#pragma once

#include "base/interlude.hpp"
#include "model/mixer/mixer_layer.hpp"
#include "model/mlp_layer.hpp"
#include "moe/moe_layer.hpp"
#include "moeloom/job/recompute.hpp"

#include <variant>

namespace moeloom {

/// What a layer keeps from forward to backward beside its input, its feed-forward half and what its
/// BranchOutputs keep.
struct LayerActivations {
  MixerActivations mixer;
  Matrix middle;
  Matrix normed;
  std::vector<float> inv_rms;

  /// Beside the mixer's own, and without what norms give.
  static double bytes_of(const LayerSpec& layer, Index tokens) {
    const Index norms = (layer.mixer_norm ? 1 : 0) + (layer.feed_forward_norm ? 1 : 0);
    return rows_bytes(tokens, {layer.hidden_size}) + static_cast<double>(norms) * rows_bytes(tokens, {1});
  }
};

/// What norms give, which costs little to make again.
struct LayerNormed {
  RowMemory mixer;
  Matrix feed_forward;

  static double bytes_of(const LayerSpec& layer, Index tokens) {
    return rows_bytes(
        tokens, {layer.mixer_norm ? layer.hidden_size : 0, layer.feed_forward_norm ? layer.hidden_size : 0});
  }
};

/// Buffers that all layers share.
struct DecoderWorkspace {
  MixerWorkspace mixer;
  MlpWorkspace mlp;
  MoeWorkspace moe;
  Matrix d_normed;  // [T, D]
  Matrix d_output;  // [T, D], where something stands between the feed-forward and the residual
  // Where backward makes experts again:
  LayerNormed normed;
  // Where it makes blocks again:
  LayerActivations activations;
  Matrix hidden;  // [T, D], the residual stream

  /// Of d_normed and d_output, and of those of the mixer.
  static double bytes_of(const LayerSpec& layer, Index tokens);
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
  const MoeLayer* moe() const { return std::get_if<MoeLayer>(&feed_forward_); }
  /// [T, D], the residual stream as it came to the last forward.
  const Matrix& input() const { return mixer_.input(); }
  /// Of what it keeps, whatever is made again: its input, and what BranchOutputs keep.
  static double bytes_of(const LayerSpec& layer, Index tokens);

  friend void swap(DecoderLayer& layer, LayerActivations& other);
  friend void swap(DecoderLayer& layer, LayerNormed& other);

 private:
  /// Of the last forward what comes before its feed-forward half, from the input.
  void make_again(const LayerContext& context);
  /// The residual stream between the halves.
  void keep_middle(ConstMatrixView hidden);
  /// The norm of that.
  void normalise(const LayerContext& context);
  /// What the MLP or the experts read.
  const Matrix& feed_forward_input() const { return norm_ ? normed_ : middle_; }
  /// Adds the MLP's or the experts' output to `output` [T, D].
  void add_feed_forward(const LayerContext& context, MatrixView output, RouterStatistics& statistics);
  void backward_feed_forward(const LayerContext& context, const RouterLossGradient& router_losses,
                             ConstMatrixView d_output, MatrixView d_normed);

  MixerLayer mixer_;
  std::optional<Norm> norm_;
  std::variant<MoeLayer, MlpLayer> feed_forward_;
  std::optional<BranchOutput> branch_output_;
  Matrix middle_;               // [T, D], the residual stream between the halves
  Matrix normed_;               // [T, D]; unused without a norm
  std::vector<float> inv_rms_;  // [T]
};

}  // namespace moeloom
