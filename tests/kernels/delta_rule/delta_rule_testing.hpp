// The gated delta rule token by token in double, its reverse, and random inputs for both.
#pragma once

#include "kernels/delta_rule.hpp"

#include <cmath>
#include <vector>

#include "elementwise/elementwise_testing.hpp"

namespace moeloom::testing {

/// Owns a shape's segments.
struct DeltaCase {
  Index key_heads, value_heads, key_dim, value_dim;
  std::vector<Index> segment_offsets;

  DeltaRuleShape shape() const { return {key_heads, value_heads, key_dim, value_dim, segment_offsets}; }
  Index tokens() const { return segment_offsets.back(); }
  Index states() const { return (static_cast<Index>(segment_offsets.size()) - 1) * value_heads; }
};

/// In the order of DeltaRuleInputs, then the initial state.
enum DeltaInput { kQuery, kKey, kValue, kLogDecay, kBeta, kInitial, kDeltaInputs };
inline const char* const kDeltaInputNames[] = {"query", "key", "value", "log_decay", "beta", "initial_state"};

template <typename T>
using DeltaTensors = std::vector<std::vector<T>>;

/// Decays from almost none to almost all, and one of each; beta in (0, 1) and exactly 0 once.
inline DeltaTensors<float> random_delta_inputs(const DeltaCase& c, std::uint64_t seed) {
  const Index tokens = c.tokens();
  const Index sizes[] = {tokens * c.key_heads * c.key_dim,
                         tokens * c.key_heads * c.key_dim,
                         tokens * c.value_heads * c.value_dim,
                         tokens * c.value_heads,
                         tokens * c.value_heads,
                         c.states() * c.key_dim * c.value_dim};
  DeltaTensors<float> inputs;
  for (const Index size : sizes) inputs.push_back(random_vector(size, seed++));
  for (std::size_t i = 0; i < inputs[kBeta].size(); ++i) {
    float& g = inputs[kLogDecay][i];
    g = -std::exp(2 * g - 2) * (i % c.value_heads == 1 ? 20.0f : 1.0f);
    inputs[kBeta][i] = 1 / (1 + std::exp(-2 * inputs[kBeta][i]));
  }
  if (inputs[kBeta].size() > 2) inputs[kBeta][2] = 0.0f;
  return inputs;
}

struct DeltaResult {
  std::vector<double> output, final_state;
};

/// The formulas of delta_rule.hpp, one token after the other.
class DeltaRecurrence {
 public:
  explicit DeltaRecurrence(const DeltaCase& c) : c_(c) {}

  DeltaResult run(const DeltaTensors<double>& in) const {
    DeltaResult result{std::vector<double>(in[kValue].size()), in[kInitial]};
    for (std::size_t s = 0; s + 1 < c_.segment_offsets.size(); ++s)
      for (Index h = 0; h < c_.value_heads; ++h) {
        double* state = result.final_state.data() +
                        (static_cast<Index>(s) * c_.value_heads + h) * c_.key_dim * c_.value_dim;
        for (Index t = c_.segment_offsets[s]; t < c_.segment_offsets[s + 1]; ++t)
          token(in, t, h, state, result.output.data() + (t * c_.value_heads + h) * c_.value_dim);
      }
    return result;
  }

 private:
  std::vector<double> normal(const std::vector<double>& x, Index t, Index head, double scale) const {
    const double* row = x.data() + (t * c_.key_heads + head) * c_.key_dim;
    double squares = 0;
    for (Index i = 0; i < c_.key_dim; ++i) squares += row[i] * row[i];
    std::vector<double> y(row, row + c_.key_dim);
    for (double& value : y) value *= scale / std::sqrt(squares + 1e-6);
    return y;
  }

  void token(const DeltaTensors<double>& in, Index t, Index h, double* state, double* output) const {
    const Index dk = c_.key_dim, dv = c_.value_dim, key_head = h / (c_.value_heads / c_.key_heads);
    const std::vector<double> q = normal(in[kQuery], t, key_head, 1 / std::sqrt(static_cast<double>(dk)));
    const std::vector<double> k = normal(in[kKey], t, key_head, 1);
    const auto number = static_cast<std::size_t>(t * c_.value_heads + h);
    const double decay = std::exp(in[kLogDecay][number]);
    const double beta = in[kBeta][number];
    const double* value = in[kValue].data() + number * at(dv);
    std::vector<double> delta(value, value + dv);
    for (Index i = 0; i < dk; ++i)
      for (Index j = 0; j < dv; ++j) delta[at(j)] -= (state[i * dv + j] *= decay) * k[at(i)];
    std::fill_n(output, dv, 0.0);
    for (Index i = 0; i < dk; ++i)
      for (Index j = 0; j < dv; ++j)
        output[j] += (state[i * dv + j] += k[at(i)] * beta * delta[at(j)]) * q[at(i)];
  }

  const DeltaCase& c_;
};

inline DeltaTensors<double> widened(const DeltaTensors<float>& tensors) {
  DeltaTensors<double> wide;
  for (const std::vector<float>& t : tensors) wide.emplace_back(t.begin(), t.end());
  return wide;
}

/// A forward and a backward of the kernel, with every state given.
struct DeltaRun {
  Matrix output, delta, final_state;
  DeltaTensors<float> gradients;
};

inline DeltaRuleInputs delta_views(const DeltaCase& c, const DeltaTensors<float>& in) {
  const Index tokens = c.tokens();
  const auto view = [&](DeltaInput which) {
    const auto size = static_cast<Index>(in[which].size());
    return ConstMatrixView(in[which].data(), tokens, tokens == 0 ? 0 : size / tokens);
  };
  return {view(kQuery), view(kKey), view(kValue), view(kLogDecay), view(kBeta)};
}

inline DeltaRun run_delta_rule(const DeltaCase& c, const DeltaTensors<float>& in,
                               const std::vector<float>& d_output, const std::vector<float>& d_final) {
  const Index values = c.value_heads * c.value_dim, cells = c.key_dim * c.value_dim;
  DeltaRun run{Matrix(c.tokens(), values), Matrix(c.tokens(), values), Matrix(c.states(), cells), in};
  const DeltaRuleInputs inputs = delta_views(c, in);
  const ConstMatrixView initial(in[kInitial].data(), c.states(), cells);
  delta_rule_forward(c.shape(), inputs, initial, run.output, run.delta, run.final_state);
  const auto gradient = [&](DeltaInput which, Index rows, Index cols) {
    return MatrixView(run.gradients[which].data(), rows, cols);
  };
  const Index keys = c.key_heads * c.key_dim;
  delta_rule_backward(c.shape(), {inputs, run.delta, initial},
                      ConstMatrixView(d_output.data(), c.tokens(), values),
                      ConstMatrixView(d_final.data(), c.states(), cells),
                      {gradient(kQuery, c.tokens(), keys), gradient(kKey, c.tokens(), keys),
                       gradient(kValue, c.tokens(), values), gradient(kLogDecay, c.tokens(), c.value_heads),
                       gradient(kBeta, c.tokens(), c.value_heads), gradient(kInitial, c.states(), cells)});
  return run;
}

}  // namespace moeloom::testing
