// Bytes of the buffers of token mixers: what a layer keeps for its backward, and what all layers share.
#pragma once

#include "moeloom/model/parts/layer_spec.hpp"

#include <array>

namespace moeloom {

/// Of one array: those of at least a huge page take whole ones.
double array_bytes(Index count, Index size = sizeof(float));
/// `arrays` of [T, width] each.
double rows_bytes(Index tokens, Index width, Index arrays = 1);

/// Of MixerLayer, but for its norms and the residual stream.
double mixer_activations(const MixerSpec& mixer, Index tokens);

/// Of MixerActivations that all layers share: of each kind of mixer the largest.
class MixerActivationsOnce {
 public:
  void take(const MixerSpec& mixer, Index tokens);
  double bytes() const;

 private:
  std::array<double, std::variant_size_v<MixerSpec>> largest_{};
};

/// Of MixerWorkspace, where each kind of mixer has buffers of its own, and what a delta net's backward holds.
class MixerBuffers {
 public:
  /// threads: of a rank.
  void take(const MixerSpec& mixer, Index tokens, Index sequence_length, Index threads);
  double bytes() const;

 private:
  std::array<double, std::variant_size_v<MixerSpec>> largest_{};
};

}  // namespace moeloom
