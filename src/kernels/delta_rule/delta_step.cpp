// One token by the recurrence: the state is read once for what it predicts and what the query reads of it,
// and once more to be brought up to date.
#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include "delta_rule/delta_chunk.hpp"

namespace moeloom {
namespace delta_rule {
namespace {

/// A thread's memory: normalised query and key, what the state predicts for the key, and the delta.
struct StepMemory {
  float *query, *key, *predicted, *delta;

  static Index floats(const DeltaRuleShape& s) {
    return 2 * Pieces::rounded(s.key_dim) + 2 * Pieces::rounded(s.value_dim);
  }
  StepMemory(const DeltaRuleShape& s, Pieces pieces)
      : query(pieces.matrix(1, s.key_dim).data),
        key(pieces.matrix(1, s.key_dim).data),
        predicted(pieces.matrix(1, s.value_dim).data),
        delta(pieces.matrix(1, s.value_dim).data) {}
};

struct Token {
  const float* value;
  float log_decay;
  float beta;
};

void step_head(const Token& token, const StepMemory& m, MatrixView state, float* output) {
  const Index cols = state.cols;
  std::fill_n(m.predicted, cols, 0.0f);
  std::fill_n(output, cols, 0.0f);
  for (Index i = 0; i < state.rows; ++i) {
    const float* row = state.row(i);
#pragma omp simd
    for (Index j = 0; j < cols; ++j) {
      m.predicted[j] = multiply_add(m.key[i], row[j], m.predicted[j]);
      output[j] = multiply_add(m.query[i], row[j], output[j]);
    }
  }
  const float decay = vector_math::exp_of_nonpositive(std::max(token.log_decay, kLeastLogDecay));
  const float own = ordered_dot(m.query, m.key, state.rows);
  for (Index j = 0; j < cols; ++j) {
    m.delta[j] = token.beta * (token.value[j] - decay * m.predicted[j]);
    output[j] = decay * output[j] + own * m.delta[j];
  }
  for (Index i = 0; i < state.rows; ++i) {
    float* row = state.row(i);
#pragma omp simd
    for (Index j = 0; j < cols; ++j) row[j] = multiply_add(m.key[i], m.delta[j], decay * row[j]);
  }
}

}  // namespace
}  // namespace delta_rule

void delta_rule_step(const DeltaRuleShape& shape, const DeltaRuleInputs& inputs, MatrixView state,
                     MatrixView output) {
  using namespace delta_rule;
  check(shape, inputs);
  const Index sequences = inputs.query.rows;
  for (const ConstMatrixView values : {inputs.value, ConstMatrixView(output)})
    require(values.rows == sequences && values.cols == shape.value_heads * shape.value_dim,
            "delta rule: value and output must be [sequences, value_heads*value_dim]");
  require(state.rows == sequences * shape.value_heads && state.cols == shape.key_dim * shape.value_dim,
          "delta rule: state must be [sequences*value_heads, key_dim*value_dim]");
  Matrix memory = Matrix::uninitialised(threads(), StepMemory::floats(shape));
  parallel_for(sequences * shape.value_heads, [&](Index task) {
    const Index s = task / shape.value_heads, head = task % shape.value_heads;
    const Index key_head = head / shape.group_size();
    const StepMemory m(shape, Pieces(memory.row(thread_index())));
    normalise_row(inputs.query.row(s) + key_head * shape.key_dim, shape.key_dim, query_scale(shape), m.query);
    normalise_row(inputs.key.row(s) + key_head * shape.key_dim, shape.key_dim, 1.0f, m.key);
    step_head({inputs.value.row(s) + head * shape.value_dim, inputs.log_decay(s, head), inputs.beta(s, head)},
              m, {state.row(task), shape.key_dim, shape.value_dim}, output.row(s) + head * shape.value_dim);
  });
}

}  // namespace moeloom
