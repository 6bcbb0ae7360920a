#include "moeloom/base/parallel.hpp"

#include "delta_rule/delta_chunk.hpp"

namespace moeloom {
namespace delta_rule {
namespace {

struct ForwardMemory {
  KeyChunk keys;
  Decays decays;
  MatrixView system;   // [rows, rows]: minus what a delta takes off those after it
  MatrixView reading;  // [rows, rows]: what an output reads of the deltas up to its own
  MatrixView scaled;   // [rows, key_dim]
  MatrixView output;   // [rows, value_dim]
  float* deltas;       // panels [rows, value_dim]
  float* states;       // of each value head of the group, panels [key_dim, value_dim]

  static Index state_floats(const DeltaRuleShape& s) {
    return Pieces::rounded(Panels::floats(s.key_dim, s.value_dim));
  }
  static Index floats(const DeltaRuleShape& s) {
    return KeyChunk::floats(s) + Decays::floats() + 2 * row_floats(kChunk) + row_floats(s.key_dim) +
           row_floats(s.value_dim) + Panels::floats(kChunk, s.value_dim) + s.group_size() * state_floats(s);
  }
  ForwardMemory(const DeltaRuleShape& s, Pieces pieces)
      : keys(s, pieces),
        decays(pieces),
        system(take_rows(pieces, kChunk)),
        reading(take_rows(pieces, kChunk)),
        scaled(take_rows(pieces, s.key_dim)),
        output(take_rows(pieces, s.value_dim)),
        deltas(pieces.panels(kChunk, s.value_dim).data),
        states(pieces.matrix(s.group_size(), state_floats(s)).data) {}

  Panels state(const DeltaRuleShape& s, Index in_group) const {
    return {states + in_group * state_floats(s), s.key_dim, s.value_dim};
  }
};

struct Forward {
  const DeltaRuleShape& shape;
  const DeltaRuleInputs& inputs;
  ConstMatrixView initial_state;
  MatrixView output;
  MatrixView delta;
  MatrixView final_state;

  void task(Index segment, Index key_head, float* memory) const;
  void chunk(Stretch rows, Index value_head, Panels state, ForwardMemory& memory) const;
};

/// Strictly lower triangle of minus between * key_key * beta_j, and lower triangle of between * query_key *
/// beta_j.
void weigh_inside(const ForwardMemory& m, const ChunkNumbers& beta) {
  for (Index i = 0; i < m.keys.rows; ++i) {
    const float *between = m.decays.between.row(i), *key_key = m.keys.key_key.row(i),
                *query_key = m.keys.query_key.row(i);
    float *system = m.system.row(i), *reading = m.reading.row(i);
    const Index columns = active_columns(i, m.keys.rows);
#pragma omp simd
    for (Index j = 0; j < columns; ++j) {
      const float weight = between[j] * beta[at(j)];
      system[j] = -weight * key_key[j];
      reading[j] = weight * query_key[j];
    }
    system[i] = 0.0f;
  }
}

// With D, E = diag(decays.from_start), diag(decays.to_end), M before the chunk and B = diag(beta):
//   deltas = (V - D K M) - tril(between k k^T, -1) B deltas
//   output = D Q M + tril(between q k^T) B deltas
//   M after the chunk = whole M + (E B K)^T deltas
void Forward::chunk(Stretch rows, Index head, Panels state, ForwardMemory& m) const {
  const Index n = rows.size();
  const Panels deltas{m.deltas, n, shape.value_dim};
  const MatrixView scaled = m.scaled.rows_from(0, n), out = m.output.rows_from(0, n);
  const auto in_chunk = [n](MatrixView square) { return square.rows_from(0, n); };
  ChunkNumbers beta = {}, factor = {};
  for (Index i = 0; i < n; ++i) beta[at(i)] = inputs.beta(rows.begin + i, head);
  m.decays.set(head_rows(inputs.log_decay, rows, head, 1));
  weigh_inside(m, beta);

  for (Index i = 0; i < n; ++i) factor[at(i)] = -m.decays.from_start[at(i)];
  scale_rows(m.keys.key(), factor, scaled);
  pack(head_rows(inputs.value, rows, head, shape.value_dim), 1.0f, deltas);
  multiply(as_is(scaled), shape.key_dim, state, deltas, Write::kAdd);
  substitute_down(in_chunk(m.system), deltas);
  unpack(deltas, head_rows(delta, rows, head, shape.value_dim));

  scale_rows(m.keys.query(), m.decays.from_start, scaled);
  multiply(as_is(scaled), shape.key_dim, state, out, Write::kReplace);
  multiply_by_lower(in_chunk(m.reading), deltas, out, Write::kAdd);
  copy(out.cols_from(0, shape.value_dim), head_rows(output, rows, head, shape.value_dim));

  for (Index i = 0; i < n; ++i) factor[at(i)] = m.decays.to_end[at(i)] * beta[at(i)];
  scale_rows(m.keys.key(), factor, scaled);
  scale_panels(state, m.decays.whole);
  multiply(transposed(scaled), n, deltas, state, Write::kAdd);
}

void Forward::task(Index segment, Index key_head, float* space) const {
  ForwardMemory m(shape, Pieces(space));
  const Stretch all = segment_of(shape, segment);
  const Index group = shape.group_size(), first_head = key_head * group;
  for (Index r = 0; r < group; ++r) {
    const Panels state = m.state(shape, r);
    if (initial_state.data == nullptr) {
      std::fill_n(state.data, Panels::floats(state.depth, state.cols), 0.0f);
    } else {
      pack(state_of(shape, initial_state, segment, first_head + r), 1.0f, state);
    }
  }
  for (Index c = 0; c < chunks_of(all); ++c) {
    const Stretch rows = chunk_rows(all, c);
    m.keys.normalise(head_rows(inputs.query, rows, key_head, shape.key_dim),
                     head_rows(inputs.key, rows, key_head, shape.key_dim));
    m.keys.multiply_inside();
    const Stretch next = rows_after(all, rows);
    ask_for(head_rows(inputs.query, next, key_head, shape.key_dim));
    ask_for(head_rows(inputs.key, next, key_head, shape.key_dim));
    for (Index r = 0; r < group; ++r) {
      ask_for(head_rows(inputs.value, next, first_head + r, shape.value_dim));
      chunk(rows, first_head + r, m.state(shape, r), m);
    }
  }
  if (final_state.data == nullptr) return;
  for (Index r = 0; r < group; ++r)
    unpack(m.state(shape, r), state_of(shape, final_state, segment, first_head + r));
}

}  // namespace
}  // namespace delta_rule

void delta_rule_forward(const DeltaRuleShape& shape, const DeltaRuleInputs& inputs,
                        ConstMatrixView initial_state, MatrixView output, MatrixView delta,
                        MatrixView final_state) {
  using namespace delta_rule;
  check(shape, inputs);
  check_segments(shape, inputs.query.rows);
  check_values(shape, inputs.value, "value");
  check_values(shape, output, "output");
  check_values(shape, delta, "delta");
  check_states(shape, initial_state, "initial_state");
  check_states(shape, final_state, "final_state");
  const Forward forward{shape, inputs, initial_state, output, delta, final_state};
  Matrix memory = Matrix::uninitialised(threads(), ForwardMemory::floats(shape));
  parallel_for(shape.segments() * shape.key_heads, [&](Index task) {
    forward.task(task / shape.key_heads, task % shape.key_heads, memory.row(thread_index()));
  });
}

}  // namespace moeloom
