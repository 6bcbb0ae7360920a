#include "delta_rule/delta_gradients.hpp"

#include "tensor/ordered_sum.hpp"

namespace moeloom::delta_rule {

ChunkNumbers product_of(const ChunkNumbers& a, const ChunkNumbers& b, float sign) {
  ChunkNumbers product;
  for (std::size_t i = 0; i < a.size(); ++i) product[i] = sign * a[i] * b[i];
  return product;
}

ChunkNumbers add_scaled(ConstMatrixView product, const ChunkNumbers& scale, ConstMatrixView x,
                        MatrixView to) {
  ChunkNumbers by_scale = {};
  for (Index i = 0; i < product.rows; ++i) {
    const float factor = scale[at(i)];
    const float *from = product.row(i), *other = x.row(i);
    float* sum = to.row(i);
#pragma omp simd
    for (Index j = 0; j < product.cols; ++j) sum[j] = multiply_add(factor, from[j], sum[j]);
    by_scale[at(i)] = factor * ordered_dot(from, other, product.cols);
  }
  return by_scale;
}

void add_inside(const KeyChunk& keys, const Decays& decays, const ChunkNumbers& beta,
                const InsideGradients& d) {
  for (Index i = 0; i < keys.rows; ++i) {
    const float *between = decays.between.row(i), *key_key = keys.key_key.row(i),
                *query_key = keys.query_key.row(i), *by_delta = d.by_delta.row(i);
    float *by_output = d.by_output.row(i), *d_query_key = d.query_key.row(i), *d_key_key = d.key_key.row(i);
    const Index columns = active_columns(i, keys.rows);
#pragma omp simd
    for (Index j = 0; j < columns; ++j) {
      const float weight = between[j] * beta[at(j)];
      const float read = weight * by_output[j], taken = -weight * beta[at(i)] * by_delta[j];
      d_query_key[j] += read;
      d_key_key[j] += taken;
      by_output[j] = read * query_key[j] + taken * key_key[j];
    }
    // A token's own delta does not enter its system, and nothing decays between a token and itself.
    d_key_key[i] = 0.0f;
    by_output[i] = 0.0f;
  }
}

void decay_gradient(ConstMatrixView by_between, const DecayGradient& by, MatrixView d_log_decay) {
  const Index rows = by_between.rows;
  ChunkNumbers below = {}, written = {};  // sums over i >= t of by_between(i, j); over j < t of of_writes
  for (Index t = 1; t < rows; ++t) written[at(t)] = written[at(t - 1)] + by.of_writes[at(t - 1)];
  float read = 0;
  for (Index t = rows - 1; t >= 0; --t) {
    const float* row = by_between.row(t);
    for (Index j = 0; j < t; ++j) below[at(j)] += row[j];
    read += by.of_reads[at(t)];
    d_log_decay(t, 0) = ordered_sum(below.data(), t) + read + written[at(t)] + by.of_state;
  }
}

void normalise_backward(ConstMatrixView dy, ConstMatrixView y, const ChunkNumbers& factor, float scale_2,
                        MatrixView d_raw) {
  for (Index i = 0; i < d_raw.rows; ++i) {
    const float along = ordered_dot(dy.row(i), y.row(i), d_raw.cols) / scale_2;
    const float *from = dy.row(i), *normal = y.row(i);
    float* to = d_raw.row(i);
    for (Index j = 0; j < d_raw.cols; ++j) to[j] = factor[at(i)] * (from[j] - along * normal[j]);
  }
}

}  // namespace moeloom::delta_rule
