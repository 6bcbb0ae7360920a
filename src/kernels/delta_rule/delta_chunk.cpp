#include "delta_rule/delta_chunk.hpp"

#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/errors.hpp"
#include "tensor/ordered_sum.hpp"

#include <cmath>
#include <functional>
#include <string>

namespace moeloom::delta_rule {
namespace {

constexpr float kNormEps = 1e-6f;

}  // namespace

void check(const DeltaRuleShape& s, const DeltaRuleInputs& inputs) {
  require(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0,
          "delta rule: key_heads must divide value_heads");
  require(s.key_dim > 0 && s.value_dim > 0, "delta rule: heads must have dimensions");
  const auto is = [rows = inputs.query.rows](ConstMatrixView m, Index cols) {
    return m.rows == rows && m.cols == cols;
  };
  require(is(inputs.query, s.key_heads * s.key_dim), "delta rule: query must be [T, key_heads*key_dim]");
  require(is(inputs.key, s.key_heads * s.key_dim), "delta rule: key must be [T, key_heads*key_dim]");
  require(is(inputs.log_decay, s.value_heads), "delta rule: log_decay must be [T, value_heads]");
  require(is(inputs.beta, s.value_heads), "delta rule: beta must be [T, value_heads]");
}

void check_segments(const DeltaRuleShape& s, Index tokens) {
  require(!s.segment_offsets.empty() && s.segment_offsets.front() == 0 &&
              s.segment_offsets.back() == tokens &&
              std::is_sorted(s.segment_offsets.begin(), s.segment_offsets.end()),
          "delta rule: segments must rise from 0 to the number of tokens");
}

void check_values(const DeltaRuleShape& s, ConstMatrixView values, const char* what) {
  require(values.rows == s.tokens() && values.cols == s.value_heads * s.value_dim,
          std::string("delta rule: ") + what + " must be [T, value_heads*value_dim]");
}

void check_states(const DeltaRuleShape& s, ConstMatrixView states, const char* what) {
  const bool fits = states.rows == s.segments() * s.value_heads && states.cols == s.key_dim * s.value_dim;
  require(states.data == nullptr || fits,
          std::string("delta rule: ") + what + " must be [segments*value_heads, key_dim*value_dim] or empty");
}

void copy_padded(ConstMatrixView source, MatrixView target) {
  for (Index i = 0; i < source.rows; ++i) {
    std::copy_n(source.row(i), source.cols, target.row(i));
    std::fill(target.row(i) + source.cols, target.row(i) + target.cols, 0.0f);
  }
}

void scale_rows(ConstMatrixView source, const ChunkNumbers& scale, MatrixView target) {
  for (Index i = 0; i < source.rows; ++i) {
    const float factor = scale[at(i)];
    const float* from = source.row(i);
    float* to = target.row(i);
    for (Index j = 0; j < source.cols; ++j) to[j] = factor * from[j];
  }
}

void scale_panels(Panels panels, float scale) {
  const Index floats = Panels::floats(panels.depth, panels.cols);
  for (Index i = 0; i < floats; ++i) panels.data[i] *= scale;
}

void transpose_panels(Panels from, Panels to) {
  for (Index first = 0; first < to.cols; first += kPanelColumns) {
    const Index cols = std::min(kPanelColumns, to.cols - first);
    if (cols < kPanelColumns) std::fill_n(to.cols_after(first).data, to.panel_floats(), 0.0f);
    for (Index row = 0; row < to.depth; row += kPanelColumns) {
      const MatrixView target = panel(to, first).rows_from(row, std::min(kPanelColumns, to.depth - row));
      const MatrixView source = panel(from, row).rows_from(first, cols).cols_from(0, target.rows);
      pack_transposed(source, 1.0f, {target.data, target.rows, cols});
    }
  }
}

/// By strips of as many columns on every processor, however many a panel holds: the order of the sum is one.
float dot(Panels a, Panels b) {
  constexpr Index kStrip = kPartialSums / 2;  // two rows go to the partial sums in turn
  const Index columns = padded_columns(a.cols);
  const auto place = [](Panels panels, Index row, Index column) {
    return panels.data + column / kPanelColumns * panels.panel_floats() + row * kPanelColumns +
           column % kPanelColumns;
  };
  double sum = 0;
  for (Index first = 0; first < a.cols; first += kStrip) {
    ordered::Chains chains = {};
    for (Index row = 0; row < a.depth; ++row)
      for (Index c = 0; c < kStrip && first + c < columns; c += kLanes) {
        Lanes& chain = chains[at((row % 2 * kStrip + c) / kLanes)];
        chain = multiply_add(load(place(a, row, first + c)), load(place(b, row, first + c)), chain);
      }
    sum += static_cast<double>(ordered::total(chains));
  }
  return static_cast<float>(sum);
}

float query_scale(const DeltaRuleShape& shape) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.key_dim)));
}

float normalise_row(const float* x, Index count, float scale, float* y) {
  const float factor = scale / std::sqrt(ordered_dot(x, x, count) + kNormEps);
  for (Index j = 0; j < count; ++j) y[j] = factor * x[j];
  return factor;
}

namespace {

void normalise_rows(ConstMatrixView raw, float scale, MatrixView to, ChunkNumbers& factors) {
  for (Index i = 0; i < raw.rows; ++i) {
    factors[at(i)] = normalise_row(raw.row(i), raw.cols, scale, to.row(i));
    std::fill(to.row(i) + raw.cols, to.row(i) + to.cols, 0.0f);
  }
}

}  // namespace

KeyChunk::KeyChunk(const DeltaRuleShape& shape, Pieces& pieces)
    : query_key(take_rows(pieces, kChunk)),
      key_key(take_rows(pieces, kChunk)),
      query_(take_rows(pieces, shape.key_dim)),
      key_(take_rows(pieces, shape.key_dim)),
      columns_(pieces.panels(shape.key_dim, kChunk).data),
      key_dim_(shape.key_dim),
      query_scale_(query_scale(shape)) {}

Index KeyChunk::floats(const DeltaRuleShape& shape) {
  return 2 * row_floats(kChunk) + 2 * row_floats(shape.key_dim) +
         Pieces::rounded(Panels::floats(shape.key_dim, kChunk));
}

void KeyChunk::normalise_keys(ConstMatrixView raw_key) {
  rows = raw_key.rows;
  normalise_rows(raw_key, 1.0f, key_, inverse_key);
}

void KeyChunk::normalise(ConstMatrixView raw_query, ConstMatrixView raw_key) {
  normalise_keys(raw_key);
  normalise_rows(raw_query, query_scale_, query_, inverse_query);
}

void KeyChunk::multiply_inside() {
  const Panels columns{columns_, key_dim_, rows};
  pack_transposed(key().cols_from(0, key_dim_), 1.0f, columns);
  multiply_to_lower(query(), columns, query_key);
  multiply_to_lower(key(), columns, key_key);
}

Decays::Decays(Pieces& pieces) : between(take_rows(pieces, kChunk)) {}

Index Decays::floats() {
  return row_floats(kChunk);
}

namespace {

/// e^x for x <= 0.
float power(double x) {
  return vector_math::exp_of_nonpositive(static_cast<float>(x));
}

}  // namespace

void Decays::set_ends(ConstMatrixView log_decay) {
  const Index rows = log_decay.rows;
  double sum = 0;
  for (Index i = 0; i < rows; ++i) {
    sum += static_cast<double>(std::max(log_decay(i, 0), kLeastLogDecay));
    sums_[at(i)] = sum;
  }
  whole = power(sum);
  for (Index i = 0; i < rows; ++i) {
    from_start[at(i)] = power(sums_[at(i)]);
    to_end[at(i)] = power(sum - sums_[at(i)]);
  }
}

void Decays::set(ConstMatrixView log_decay) {
  set_ends(log_decay);
  for (Index i = 0; i < log_decay.rows; ++i) {
    float* row = between.row(i);
    const double own = sums_[at(i)];
    const Index columns = active_columns(i, log_decay.rows);
    for (Index j = 0; j < columns; ++j) {
      // Beyond the diagonal the difference is above 0, or of no meaning.
      const float value = power(std::min(own - sums_[at(j)], 0.0));
      row[j] = j <= i ? value : 0.0f;
    }
  }
}

}  // namespace moeloom::delta_rule
