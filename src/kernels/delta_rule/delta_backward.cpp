#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include "delta_rule/delta_gradients.hpp"

namespace moeloom {
namespace delta_rule {
namespace {

/// States are kept transposed, [value_dim, key_dim] in panels: so products with M^T read them.
struct BackwardMemory {
  KeyChunk keys;
  Decays decays;
  MatrixView reading, system;  // [rows, rows]: between * query_key, and between * key_key with a minus
  InsideGradients inside;
  MatrixView deltas, d_output, d_deltas;       // [rows, value_dim]
  MatrixView scaled, product, d_query, d_key;  // [rows, key_dim]
  float *delta_panels, *d_output_panels;       // [rows, value_dim]
  float *delta_columns, *key_panels;           // [value_dim, rows], [rows, key_dim]
  float* d_state_transposed;                   // [value_dim, key_dim]
  float* d_states;                             // of each head of the group, [key_dim, value_dim]
  float* states;                               // of each chunk and each head, [value_dim, key_dim]

  static Index transposed_floats(const DeltaRuleShape& s) {
    return Pieces::rounded(Panels::floats(s.value_dim, s.key_dim));
  }
  static Index state_floats(const DeltaRuleShape& s) {
    return Pieces::rounded(Panels::floats(s.key_dim, s.value_dim));
  }
  static Index floats(const DeltaRuleShape& s, Index chunks) {
    return KeyChunk::floats(s) + Decays::floats() + 6 * row_floats(kChunk) + 3 * row_floats(s.value_dim) +
           4 * row_floats(s.key_dim) + 2 * Panels::floats(kChunk, s.value_dim) +
           Pieces::rounded(Panels::floats(s.value_dim, kChunk)) + Panels::floats(kChunk, s.key_dim) +
           s.group_size() * state_floats(s) + (1 + chunks * s.group_size()) * transposed_floats(s);
  }
  BackwardMemory(const DeltaRuleShape& s, Index chunks, Pieces pieces)
      : keys(s, pieces),
        decays(pieces),
        reading(take_rows(pieces, kChunk)),
        system(take_rows(pieces, kChunk)),
        inside{take_rows(pieces, kChunk), take_rows(pieces, kChunk), take_rows(pieces, kChunk),
               take_rows(pieces, kChunk)},
        deltas(take_rows(pieces, s.value_dim)),
        d_output(take_rows(pieces, s.value_dim)),
        d_deltas(take_rows(pieces, s.value_dim)),
        scaled(take_rows(pieces, s.key_dim)),
        product(take_rows(pieces, s.key_dim)),
        d_query(take_rows(pieces, s.key_dim)),
        d_key(take_rows(pieces, s.key_dim)),
        delta_panels(pieces.panels(kChunk, s.value_dim).data),
        d_output_panels(pieces.panels(kChunk, s.value_dim).data),
        delta_columns(pieces.panels(s.value_dim, kChunk).data),
        key_panels(pieces.panels(kChunk, s.key_dim).data),
        d_state_transposed(pieces.panels(s.value_dim, s.key_dim).data),
        d_states(pieces.matrix(s.group_size(), state_floats(s)).data),
        states(pieces.matrix(chunks * s.group_size(), transposed_floats(s)).data) {}

  Panels d_state(const DeltaRuleShape& s, Index in_group) const {
    return {d_states + in_group * state_floats(s), s.key_dim, s.value_dim};
  }
  /// Before the chunk, transposed.
  Panels state(const DeltaRuleShape& s, Index chunk, Index in_group) const {
    return {states + (chunk * s.group_size() + in_group) * transposed_floats(s), s.value_dim, s.key_dim};
  }
};

struct Backward {
  const DeltaRuleShape& shape;
  const DeltaRuleSaved& saved;
  ConstMatrixView d_output;
  ConstMatrixView d_final_state;
  const DeltaRuleGradients& gradients;

  void task(Index segment, Index key_head, float* memory) const;
  void states_before_chunks(Index segment, Index key_head, BackwardMemory& memory) const;
  void begin_chunk(Stretch rows, Index key_head, BackwardMemory& memory) const;
  void value_head(Stretch rows, Index value_head, Panels state, Panels d_state, BackwardMemory& memory) const;
  void end_chunk(Stretch rows, Index key_head, BackwardMemory& memory) const;
  ChunkNumbers betas(Stretch rows, Index value_head) const;
};

MatrixView rows_of(MatrixView m, const BackwardMemory& memory) {
  return m.rows_from(0, memory.keys.rows);
}

ChunkNumbers Backward::betas(Stretch rows, Index head) const {
  ChunkNumbers beta = {};
  for (Index i = 0; i < rows.size(); ++i) beta[at(i)] = saved.inputs.beta(rows.begin + i, head);
  return beta;
}

/// The forward's states again, from its deltas.
void Backward::states_before_chunks(Index segment, Index key_head, BackwardMemory& m) const {
  const Stretch all = segment_of(shape, segment);
  const Index group = shape.group_size();
  for (Index r = 0; r < group; ++r) {
    const Panels first = m.state(shape, 0, r);
    if (saved.initial_state.data == nullptr) {
      std::fill_n(first.data, Panels::floats(first.depth, first.cols), 0.0f);
    } else {
      pack_transposed(state_of(shape, saved.initial_state, segment, key_head * group + r), 1.0f, first);
    }
  }
  for (Index c = 0; c + 1 < chunks_of(all); ++c) {
    const Stretch rows = chunk_rows(all, c);
    m.keys.normalise_keys(head_rows(saved.inputs.key, rows, key_head, shape.key_dim));
    const Panels written{m.key_panels, rows.size(), shape.key_dim};
    const Stretch next = rows_after(all, rows);
    ask_for(head_rows(saved.inputs.key, next, key_head, shape.key_dim));
    for (Index r = 0; r < group; ++r) {
      const Index head = key_head * group + r;
      ask_for(head_rows(saved.delta, next, head, shape.value_dim));
      m.decays.set_ends(head_rows(saved.inputs.log_decay, rows, head, 1));
      scale_rows(m.keys.key(), product_of(m.decays.to_end, betas(rows, head)), rows_of(m.scaled, m));
      pack(rows_of(m.scaled, m).cols_from(0, shape.key_dim), 1.0f, written);
      copy_padded(head_rows(saved.delta, rows, head, shape.value_dim), rows_of(m.deltas, m));
      const Panels before = m.state(shape, c, r), after = m.state(shape, c + 1, r);
      const Index floats = Panels::floats(before.depth, before.cols);
      for (Index i = 0; i < floats; ++i) after.data[i] = m.decays.whole * before.data[i];
      multiply(transposed(rows_of(m.deltas, m)), rows.size(), written, after, Write::kAdd);
    }
  }
}

void Backward::begin_chunk(Stretch rows, Index key_head, BackwardMemory& m) const {
  m.keys.normalise(head_rows(saved.inputs.query, rows, key_head, shape.key_dim),
                   head_rows(saved.inputs.key, rows, key_head, shape.key_dim));
  m.keys.multiply_inside();
  fill(rows_of(m.d_query, m), 0.0f);
  fill(rows_of(m.d_key, m), 0.0f);
  fill(rows_of(m.inside.query_key, m), 0.0f);
  fill(rows_of(m.inside.key_key, m), 0.0f);
}

/// reading = between * query_key, system = -between * key_key * beta_i below the diagonal.
void weigh_inside(const BackwardMemory& m, const ChunkNumbers& beta) {
  for (Index i = 0; i < m.keys.rows; ++i) {
    const float *between = m.decays.between.row(i), *key_key = m.keys.key_key.row(i),
                *query_key = m.keys.query_key.row(i);
    float *reading = m.reading.row(i), *system = m.system.row(i);
    const Index columns = active_columns(i, m.keys.rows);
#pragma omp simd
    for (Index j = 0; j < columns; ++j) {
      reading[j] = between[j] * query_key[j];
      system[j] = -between[j] * key_key[j] * beta[at(i)];
    }
    system[i] = 0.0f;
  }
}

// As in the forward, with d for gradients and S for the state after the chunk:
//   d_deltas = tril(between q k^T)^T d_output + E K dS - B tril(between k k^T, -1)^T B d_deltas, without a B
//   in
//     front: d(B deltas)
//   d_value = B d_deltas,  d_beta_i = d_deltas_i . deltas_i
//   dM = whole dS + Q^T D d_output - K^T D d_value
//   d_query = D d_output M^T + ..., d_key = -D d_value M^T + E B deltas dS^T + ...: the rest in end_chunk()
void Backward::value_head(Stretch rows, Index head, Panels state, Panels d_state, BackwardMemory& m) const {
  const Index n = rows.size();
  const Decays& decays = m.decays;
  const auto of_chunk = [&m](MatrixView matrix) { return rows_of(matrix, m); };
  const auto values = [&](auto matrix) { return head_rows(matrix, rows, head, shape.value_dim); };
  const Panels d_deltas{m.delta_panels, n, shape.value_dim}, outputs{m.d_output_panels, n, shape.value_dim};
  const ChunkNumbers beta = betas(rows, head);
  const MatrixView scaled = of_chunk(m.scaled), product = of_chunk(m.product);
  DecayGradient by_decay;
  m.decays.set(head_rows(saved.inputs.log_decay, rows, head, 1));
  weigh_inside(m, beta);
  copy_padded(values(saved.delta), of_chunk(m.deltas));
  copy_padded(values(d_output), of_chunk(m.d_output));
  pack(values(d_output), 1.0f, outputs);

  multiply_by_upper(of_chunk(m.reading), outputs, d_deltas, Write::kReplace);
  scale_rows(m.keys.key(), decays.to_end, scaled);
  multiply(as_is(scaled), shape.key_dim, d_state, d_deltas, Write::kAdd);
  substitute_up(of_chunk(m.system), d_deltas);
  unpack(d_deltas, of_chunk(m.d_deltas));
  for (Index i = 0; i < n; ++i)
    gradients.beta(rows.begin + i, head) = ordered_dot(m.d_deltas.row(i), m.deltas.row(i), shape.value_dim);
  scale_rows(of_chunk(m.d_deltas).cols_from(0, shape.value_dim), beta, values(gradients.value));

  const Panels columns{m.delta_columns, shape.value_dim, n};
  pack_transposed(of_chunk(m.deltas).cols_from(0, shape.value_dim), 1.0f, columns);
  multiply_to_lower(of_chunk(m.d_output), columns, m.inside.by_output);
  multiply_to_lower(of_chunk(m.d_deltas), columns, m.inside.by_delta);
  add_inside(m.keys, decays, beta, m.inside);

  multiply(as_is(m.d_output.rows_from(0, n)), shape.value_dim, state, product, Write::kReplace);
  by_decay.of_reads = add_scaled(product, decays.from_start, m.keys.query(), of_chunk(m.d_query));
  const ChunkNumbers taken = product_of(decays.from_start, beta, -1);
  multiply(as_is(m.d_deltas.rows_from(0, n)), shape.value_dim, state, product, Write::kReplace);
  const ChunkNumbers by_taken = add_scaled(product, taken, m.keys.key(), of_chunk(m.d_key));
  for (std::size_t i = 0; i < by_taken.size(); ++i) by_decay.of_reads[i] += by_taken[i];

  const Panels d_transposed{m.d_state_transposed, shape.value_dim, shape.key_dim};
  transpose_panels(d_state, d_transposed);
  multiply(as_is(m.deltas.rows_from(0, n)), shape.value_dim, d_transposed, product, Write::kReplace);
  by_decay.of_writes = add_scaled(product, product_of(decays.to_end, beta), m.keys.key(), of_chunk(m.d_key));
  by_decay.of_state = decays.whole * dot(d_transposed, state);
  decay_gradient(of_chunk(m.inside.by_output), by_decay, head_rows(gradients.log_decay, rows, head, 1));

  scale_panels(d_state, decays.whole);
  scale_rows(m.keys.query(), decays.from_start, scaled);
  multiply(transposed(scaled), n, outputs, d_state, Write::kAdd);
  scale_rows(m.keys.key(), taken, scaled);
  multiply(transposed(scaled), n, d_deltas, d_state, Write::kAdd);
}

/// What passed between the tokens of the chunk, for all heads of the group at once.
void Backward::end_chunk(Stretch rows, Index key_head, BackwardMemory& m) const {
  const MatrixView d_query = rows_of(m.d_query, m), d_key = rows_of(m.d_key, m);
  const MatrixView d_query_key = rows_of(m.inside.query_key, m), d_key_key = rows_of(m.inside.key_key, m);
  const Panels side{m.key_panels, rows.size(), shape.key_dim};
  pack(m.keys.key().cols_from(0, shape.key_dim), 1.0f, side);
  multiply_by_lower(d_query_key, side, d_query, Write::kAdd);
  multiply_by_lower(d_key_key, side, d_key, Write::kAdd);
  multiply_by_upper(d_key_key, side, d_key, Write::kAdd);
  pack(m.keys.query().cols_from(0, shape.key_dim), 1.0f, side);
  multiply_by_upper(d_query_key, side, d_key, Write::kAdd);
  normalise_backward(d_query, m.keys.query(), m.keys.inverse_query, 1.0f / static_cast<float>(shape.key_dim),
                     head_rows(gradients.query, rows, key_head, shape.key_dim));
  normalise_backward(d_key, m.keys.key(), m.keys.inverse_key, 1.0f,
                     head_rows(gradients.key, rows, key_head, shape.key_dim));
}

void Backward::task(Index segment, Index key_head, float* space) const {
  const Stretch all = segment_of(shape, segment);
  const Index chunks = chunks_of(all), group = shape.group_size(), first_head = key_head * group;
  BackwardMemory m(shape, std::max<Index>(1, chunks), Pieces(space));
  states_before_chunks(segment, key_head, m);
  for (Index r = 0; r < group; ++r) {
    const Panels last = m.d_state(shape, r);
    if (d_final_state.data == nullptr) {
      std::fill_n(last.data, Panels::floats(last.depth, last.cols), 0.0f);
    } else {
      pack(state_of(shape, d_final_state, segment, first_head + r), 1.0f, last);
    }
  }
  for (Index c = chunks - 1; c >= 0; --c) {
    const Stretch rows = chunk_rows(all, c);
    begin_chunk(rows, key_head, m);
    const Stretch next = rows_before(all, rows);
    ask_for(head_rows(saved.inputs.query, next, key_head, shape.key_dim));
    ask_for(head_rows(saved.inputs.key, next, key_head, shape.key_dim));
    for (Index r = 0; r < group; ++r) {
      ask_for(head_rows(saved.delta, next, first_head + r, shape.value_dim));
      ask_for(head_rows(d_output, next, first_head + r, shape.value_dim));
      value_head(rows, first_head + r, m.state(shape, c, r), m.d_state(shape, r), m);
    }
    end_chunk(rows, key_head, m);
  }
  if (gradients.initial_state.data == nullptr) return;
  for (Index r = 0; r < group; ++r)
    unpack(m.d_state(shape, r), state_of(shape, gradients.initial_state, segment, first_head + r));
}

Index most_chunks(const DeltaRuleShape& shape) {
  Index most = 1;
  for (Index s = 0; s < shape.segments(); ++s) most = std::max(most, chunks_of(segment_of(shape, s)));
  return most;
}

}  // namespace
}  // namespace delta_rule

Index delta_rule_backward_bytes(const DeltaRuleShape& shape, Index threads) {
  using namespace delta_rule;
  return threads * BackwardMemory::floats(shape, most_chunks(shape)) * static_cast<Index>(sizeof(float));
}

void delta_rule_backward(const DeltaRuleShape& shape, const DeltaRuleSaved& saved, ConstMatrixView d_output,
                         ConstMatrixView d_final_state, const DeltaRuleGradients& gradients) {
  using namespace delta_rule;
  check(shape, saved.inputs);
  check_segments(shape, saved.inputs.query.rows);
  check(shape, {gradients.query, gradients.key, {}, gradients.log_decay, gradients.beta});
  require(gradients.query.rows == shape.tokens(), "delta rule: gradients must have a row for each token");
  check_values(shape, saved.delta, "delta");
  check_values(shape, d_output, "d_output");
  check_values(shape, gradients.value, "the gradient of value");
  check_states(shape, saved.initial_state, "initial_state");
  check_states(shape, d_final_state, "d_final_state");
  check_states(shape, gradients.initial_state, "the gradient of initial_state");
  const Backward backward{shape, saved, d_output, d_final_state, gradients};
  Matrix memory = Matrix::uninitialised(threads(), BackwardMemory::floats(shape, most_chunks(shape)));
  parallel_for(shape.segments() * shape.key_heads, [&](Index task) {
    backward.task(task / shape.key_heads, task % shape.key_heads, memory.row(thread_index()));
  });
}

}  // namespace moeloom
