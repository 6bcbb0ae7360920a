// Numbers of the update, and what is done where one cannot be made. The same on every rank.
#pragma once

namespace moeloom {

/// Loshchilov and Hutter 2019, algorithm 2. Muon takes weight_decay from here too.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

/// What becomes of an expert that no token of a step chose.
enum class StarvedExperts {
  kDecay,  // a zero gradient: decay and momentum act, time advances (a stacked parameter's meaning)
  kSkip,   // left alone, time included (HF's list-backed experts, whose gradient is unset)
};

/// All of that.
struct OptimizerSettings {
  AdamW adamw = {};
  double max_grad_norm = 1.0;  // of all gradients together, each parameter counted once; 0: no clipping
  bool decay_all = false;      // as torch.optim does by itself; false: norms and biases are spared decay
  StarvedExperts starved = StarvedExperts::kDecay;
};

/// What becomes of a step whose loss or gradient is not finite: the job stops with AgreedError before an
/// update is made, or the step is left out.
enum class OnNan { kStop, kSkip };

}  // namespace moeloom
