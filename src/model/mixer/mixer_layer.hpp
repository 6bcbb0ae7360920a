// The first half of a decoder layer: perhaps a norm, a token mixer, perhaps a norm of what it gives,
// residual.
#pragma once

#include "model/attention/attention_mixer.hpp"
#include "model/mixer/delta_net.hpp"
#include "model/mixer/short_conv.hpp"
#include "model/parts/branch_output.hpp"

#include <utility>
#include <variant>

namespace moeloom {

/// What a mixer keeps of one sequence.
using MixerCache = std::variant<KeyValueCache, RecurrentState>;

/// Buffers that all layers share.
struct MixerWorkspace {
  Matrix d_output;  // [T, D], where a norm stands between the output and the residual
  Matrix d_normed;
  AttentionWorkspace attention;
  ShortConvWorkspace short_conv;
  DeltaNetWorkspace delta_net;

  /// Of a kind of mixer, with what its backward holds.
  static double bytes_of(const MixerSpec& mixer, Index tokens, Index sequence_length, Index threads);
};

/// What a MixerLayer keeps from forward to backward, with any mixer, beside its input and what its
/// BranchOutput keeps.
struct MixerActivations {
  RowMemory normed;
  std::vector<float> inv_rms;
  AttentionActivations attention;
  ShortConvActivations short_conv;
  DeltaNetActivations delta_net;

  /// Of a kind of mixer, beside what its norm gives.
  static double bytes_of(const MixerSpec& mixer, Index tokens);
};

class MixerLayer {
 public:
  /// Without `norm` the mixer reads the residual stream. residual_scale: of what is added to it.
  MixerLayer(const MixerSpec& spec, const std::optional<NormSpec>& norm,
             const std::optional<NormSpec>& output_norm, const ParameterStore& store,
             float residual_scale = 1);

  /// hidden [T, D]: the mixer's output is added in place.
  void forward(const KernelTable& kernels, const MixerContext& context, MatrixView hidden);
  /// For one sequence of up to `capacity` positions.
  MixerCache make_cache(Index capacity) const;
  /// As forward for the next positions of one sequence, which begins anew with position_ids[0] = 0 and else
  /// goes on behind so many positions that the cache serves. What the last forward kept is void.
  void forward_cached(const KernelTable& kernels, const MixerContext& context, MixerCache& cache,
                      MatrixView hidden);
  /// Of the last forward, which it uses up: d_hidden [T, D], gradient of the output, becomes that of the
  /// input.
  void backward(const KernelTable& kernels, const MixerContext& context, MatrixView d_hidden,
                MixerWorkspace& workspace);

  /// [T, D], the residual stream as it came to the last forward.
  const Matrix& input() const { return input_; }
  void swap_activations(MixerActivations& other);
  /// What the mixer read alone, which make_normed_again() makes of the input.
  void swap_normed(RowMemory& other) { std::swap(normed_, other); }
  void make_normed_again(const KernelTable& kernels) { normed(kernels, input_); }

 private:
  /// What the mixer reads.
  ConstRows normed(const KernelTable& kernels, ConstMatrixView hidden);
  /// hidden += what `mix(output, mode)` writes.
  template <typename Mix>
  void add_output(const KernelTable& kernels, MatrixView hidden, const Mix& mix);
  ConstMatrixView output_gradient(const KernelTable& kernels, ConstMatrixView d_hidden,
                                  MixerWorkspace& workspace) const;

  std::optional<Norm> norm_;
  std::variant<AttentionMixer, ShortConv, DeltaNet> mixer_;
  std::optional<BranchOutput> branch_output_;
  Matrix input_;                // [T, D]
  RowMemory normed_;            // [T, D], of what the dense products multiply; unused without a norm
  std::vector<float> inv_rms_;  // [T]
};

}  // namespace moeloom
