// AdamW on a stretch of weights (Loshchilov & Hutter 2019, algorithm 2).
#pragma once

#include "moeloom/tensor/stored_rows.hpp"
#include "moeloom/train/optimizer_settings.hpp"
#include "train/moments.hpp"

#include <span>

namespace moeloom {

/// What one update of one stretch needs besides the numbers themselves.
struct AdamWUpdate {
  double learning_rate = 0;
  double grad_scale = 1;  // the clipping coefficient
  double weight_decay = 0;
  Index time = 1;  // updates of this stretch, this one included
  /// What random rounding of moments begins with: the stretch and the time must give it.
  std::uint64_t rounding = 0;
};

/// w, m, v [n] in place from grad [n]; one vectorised pass.
void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, std::span<float> m, std::span<float> v);
/// The same with weights and moments of any format, read, updated and written in the one pass. Weights in
/// bf16 are rounded at random, as moments are, by further bits. Gradients are floats or bf16.
void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  const StoredRows& w, MomentView m, MomentView v);
void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const std::uint16_t> grad,
                  const StoredRows& w, MomentView m, MomentView v);

}  // namespace moeloom
