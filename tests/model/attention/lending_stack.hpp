// A layer that lends its keys and values and two that read them, one behind the other.
#pragma once

#include "model/parts/lent_keys.hpp"

#include <deque>
#include <numeric>
#include <vector>

#include "attention/attention_layer_testing.hpp"

namespace moeloom::testing {

inline constexpr Index kLender = 0;
inline constexpr Index kLayers = 3;

/// The specification of the lender; of readers also keys_of.
inline std::vector<AttentionCase> lending_cases() {
  const AttentionSpec normed = with(projected(4, 2, 8), [](auto& s) { s.qk_norm = QkNorm::kPerHead; });
  return {
      {"plain", projected(4, 2, 8), {}},
      {"sliding_of_gemma4",
       with(normed,
            [](auto& s) {
              s.value_norm = true;
              s.window = 4;
            }),
       {},
       true},
      {"full_of_gemma4", with(normed, [](auto& s) { s.keys_are_values = s.value_norm = true; }), {}, true},
      {"norm_after_rope_gate_sinks_and_narrow_scaled_values",
       with(normed,
            [](auto& s) {
              s.qk_norm_after_rope = s.sinks = true;
              s.gate = OutputGate{.per_head = true};
              s.value_dim = 5;
              s.value_scale = 0.7f;
              s.window = 6;
            }),
       {}},
  };
}

inline AttentionCase layer_of(AttentionCase c, Index layer) {
  if (layer == kLender) {
    c.spec.lends_keys = true;
  } else {
    c.spec.keys_of = kLender;
  }
  return c;
}

struct LendingStack {
  std::deque<AttentionFixture> fixtures;
  std::vector<MixerLayer> layers;
  std::vector<LentKeys> lent = std::vector<LentKeys>(kLayers);
  MixerWorkspace workspace;
  KernelTable kernels = norm_and_rope_kernels(true);

  std::vector<Index> segments;
  std::vector<std::int32_t> positions;

  explicit LendingStack(const AttentionCase& c, const std::vector<Index>& segment_offsets = {})
      : segments(segment_offsets) {
    for (Index layer = 0; layer < kLayers; ++layer) {
      AttentionFixture& fixture = fixtures.emplace_back(layer_of(c, layer));
      for (const Parameter& p : fixture.store.parameters())  // no layer's are another's
        for (float& value : p.value.flat()) value *= 1 + 0.1f * static_cast<float>(layer);
      layers.push_back(fixture.layer());
    }
    positions = fixtures.front().positions;
    for (std::size_t s = 0; s + 1 < segments.size(); ++s)
      std::iota(positions.begin() + segments[s], positions.begin() + segments[s + 1], 0);
  }

  MixerContext context(Index layer) {
    MixerContext context = fixtures.front().context();
    context.position_ids = positions;
    context.segment_offsets = segments;
    context.layer = layer;
    context.lent = lent;
    return context;
  }
  Matrix forward(ConstMatrixView input) {
    Matrix hidden = Matrix::copy_of(input);
    for (Index layer = 0; layer < kLayers; ++layer)
      layers[at(layer)].forward(kernels, context(layer), hidden);
    return hidden;
  }
  Matrix backward(ConstMatrixView d_output) {
    Matrix gradient = Matrix::copy_of(d_output);
    for (Index layer = kLayers - 1; layer >= 0; --layer)
      layers[at(layer)].backward(kernels, context(layer), gradient, workspace);
    return gradient;
  }
  std::vector<float> gradients() {
    std::vector<float> all;
    for (AttentionFixture& fixture : fixtures)
      for (const float g : fixture.store.gradients(Placement::kWorld)) all.push_back(g);
    return all;
  }
};

inline std::vector<AttentionReference> references(const LendingStack& stack) {
  std::vector<AttentionReference> list;
  for (const AttentionFixture& fixture : stack.fixtures)
    list.emplace_back(fixture.reference()).segment_offsets = stack.segments;
  return list;
}

inline Doubles by_definition(const std::vector<AttentionReference>& layers, Doubles hidden) {
  const std::vector<AttentionReference::Heads> lent = layers[kLender].heads_of(hidden);
  hidden = layers[kLender].forward(hidden);
  for (std::size_t layer = 1; layer < layers.size(); ++layer) hidden = layers[layer].forward(hidden, &lent);
  return hidden;
}

}  // namespace moeloom::testing
