#include "moeloom/kernels/rope.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cmath>

#include "row_tasks.hpp"

namespace moeloom {
namespace {

/// Signs of the angle.
constexpr int kForward = 1;
constexpr int kBackward = -1;

void check(ConstMatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
           const RopeTable& table) {
  require(head_dim > 0 && x.cols % head_dim == 0, "head_dim must divide the columns");
  require(table.rotary_dim() <= head_dim, "rotary_dim must not exceed head_dim");
  require(static_cast<Index>(position_ids.size()) == x.rows, "position_ids needs one position for each row");
  const bool known = std::all_of(position_ids.begin(), position_ids.end(),
                                 [&](std::int32_t id) { return id >= 0 && id < table.positions(); });
  require(known, "each position must be at least 0 and below the table's positions");
}

template <int kSign>
void turn_plainly(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                  const RopeTable& table) {
  check(x, head_dim, position_ids, table);
  const Index half = table.rotary_dim() / 2;
  for (Index t = 0; t < x.rows; ++t) {
    const Index position = position_ids[static_cast<std::size_t>(t)];
    for (Index head = 0; head < x.cols; head += head_dim) {
      for (Index i = 0; i < half; ++i) {
        const float cosine = table.cosine.row(position)[i];
        const float sine = kSign * table.sine.row(position)[i];
        const float a = x(t, head + i);
        const float b = x(t, head + half + i);
        x(t, head + i) = a * cosine - b * sine;
        x(t, head + half + i) = b * cosine + a * sine;
      }
    }
  }
}

template <int kSign>
void turn_head(float* first, float* second, const float* cosine, const float* sine, Index half) {
#pragma omp simd
  for (Index i = 0; i < half; ++i) {
    const float a = first[i];
    const float b = second[i];
    const float s = kSign * sine[i];
    first[i] = a * cosine[i] - b * s;
    second[i] = b * cosine[i] + a * s;
  }
}

template <int kSign>
void turn(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids, const RopeTable& table) {
  check(x, head_dim, position_ids, table);
  const Index half = table.rotary_dim() / 2;
  parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Index position = position_ids[static_cast<std::size_t>(t)];
      const float* cosine = table.cosine.row(position);
      const float* sine = table.sine.row(position);
      for (float* head = x.row(t); head < x.row(t) + x.cols; head += head_dim) {
        turn_head<kSign>(head, head + half, cosine, sine, half);
      }
    }
  });
}

}  // namespace

RopeTable make_rope_table(Index positions, Index rotary_dim, double theta) {
  require(positions >= 0 && rotary_dim >= 0 && rotary_dim % 2 == 0, "rotary_dim must be even");
  require(theta > 0, "theta must be positive");
  const Index half = rotary_dim / 2;
  RopeTable table{Matrix(positions, half), Matrix(positions, half)};
  for (Index i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    for (Index position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table.cosine.row(position)[i] = static_cast<float>(std::cos(angle));
      table.sine.row(position)[i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

RopeKernel reference_rope() {
  return {turn_plainly<kForward>, turn_plainly<kBackward>};
}
RopeKernel fused_rope() {
  return {turn<kForward>, turn<kBackward>};
}

}  // namespace moeloom
