// Numbers of the update, and what is done where one cannot be made.
#pragma once

namespace moeloom {

struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

enum class StarvedExperts {
  kDecay,  // a zero gradient: decay and momentum act, time advances (a stacked parameter's meaning)
  kSkip,   // left alone, time included (HF's list-backed experts, whose gradient is unset)
};

/// Numbers of the update.
struct OptimizerSettings {
  AdamW adamw = {};
  double max_grad_norm = 1.0;  // 0: no clipping
  bool decay_all = false;      // as torch.optim does by itself; false: norms and biases are spared decay
  StarvedExperts starved = StarvedExperts::kDecay;
};

/// What becomes of a step whose loss or gradient is not finite.
enum class OnNan { kStop, kSkip };

}  // namespace moeloom
