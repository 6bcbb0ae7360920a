#include "moeloom/kernels/elementwise/rope.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/fetch_lines.hpp"

#include <algorithm>
#include <vector>

#include "elementwise/row_tasks.hpp"

namespace moeloom {
namespace {

/// Signs of the angle.
constexpr int kForward = 1;
constexpr int kBackward = -1;

void check(ConstMatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
           const RopeTable& table) {
  require(head_dim > 0 && x.cols % head_dim == 0, "head_dim must divide the columns");
  require(table.first_dim + table.rotary_dim() <= head_dim,
          "first_dim + rotary_dim must not exceed head_dim");
  require(static_cast<Index>(position_ids.size()) == x.rows, "position_ids needs one position for each row");
  const bool known = std::all_of(position_ids.begin(), position_ids.end(),
                                 [&](std::int32_t id) { return id >= 0 && id < table.positions(); });
  require(known, "each position must be at least 0 and below the table's positions");
}

/// Where pairs stand among the turned elements: pair i at i * step and i * step + gap.
struct Places {
  Index step;
  Index gap;
};

Places places_before(const RopeTable& table) {
  return table.pairs == RopePairs::kHalfSplit ? Places{1, table.rotary_dim() / 2} : Places{2, 1};
}
Places places_after(const RopeTable& table) {
  return table.pairs == RopePairs::kInterleaved ? Places{2, 1} : Places{1, table.rotary_dim() / 2};
}

template <int kSign>
void turn_plainly(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                  const RopeTable& table) {
  check(x, head_dim, position_ids, table);
  const Places from = kSign == kForward ? places_before(table) : places_after(table);
  const Places to = kSign == kForward ? places_after(table) : places_before(table);
  std::vector<float> before(static_cast<std::size_t>(table.rotary_dim()));
  for (Index t = 0; t < x.rows; ++t) {
    const Index position = position_ids[static_cast<std::size_t>(t)];
    for (Index head = 0; head < x.cols; head += head_dim) {
      float* turned = x.row(t) + head + table.first_dim;
      std::copy_n(turned, before.size(), before.begin());
      for (Index i = 0; i < table.rotary_dim() / 2; ++i) {
        const float cosine = table.cosine.row(position)[i];
        const float sine = kSign * table.sine.row(position)[i];
        const float a = before[static_cast<std::size_t>(i * from.step)];
        const float b = before[static_cast<std::size_t>(i * from.step + from.gap)];
        turned[i * to.step] = a * cosine - b * sine;
        turned[i * to.step + to.gap] = b * cosine + a * sine;
      }
    }
  }
}

/// A position's cos and sin, and memory for a head's turned elements.
struct Turn {
  const float* cosine;
  const float* sine;
  Index pairs;
  float* scratch;
};

template <int kSign>
void turn_halves(float* x, const Turn& turn) {
  float *first = x, *second = x + turn.pairs;
  const float *cosine = turn.cosine, *sine = turn.sine;
#pragma omp simd
  for (Index i = 0; i < turn.pairs; ++i) {
    const float a = first[i];
    const float b = second[i];
    const float s = kSign * sine[i];
    first[i] = a * cosine[i] - b * s;
    second[i] = b * cosine[i] + a * s;
  }
}

template <int kSign>
void turn_neighbours(float* x, const Turn& turn) {
  const float *cosine = turn.cosine, *sine = turn.sine;
#pragma omp simd
  for (Index i = 0; i < turn.pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    const float s = kSign * sine[i];
    x[2 * i] = a * cosine[i] - b * s;
    x[2 * i + 1] = b * cosine[i] + a * s;
  }
}

void neighbours_to_halves(const float* x, Index pairs, float* y) {
#pragma omp simd
  for (Index i = 0; i < pairs; ++i) {
    y[i] = x[2 * i];
    y[i + pairs] = x[2 * i + 1];
  }
}

void halves_to_neighbours(const float* x, Index pairs, float* y) {
#pragma omp simd
  for (Index i = 0; i < pairs; ++i) {
    y[2 * i] = x[i];
    y[2 * i + 1] = x[i + pairs];
  }
}

void turn_into_halves(float* x, const Turn& turn) {
  neighbours_to_halves(x, turn.pairs, turn.scratch);
  turn_halves<kForward>(turn.scratch, turn);
  std::copy_n(turn.scratch, 2 * turn.pairs, x);
}

void turn_back_from_halves(float* x, const Turn& turn) {
  turn_halves<kBackward>(x, turn);
  std::copy_n(x, 2 * turn.pairs, turn.scratch);
  halves_to_neighbours(turn.scratch, turn.pairs, x);
}

/// turn_head(first turned element, turn) for every head, rows shared out among the threads.
template <typename TurnHead>
void turn_heads(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                const RopeTable& table, TurnHead&& turn_head) {
  check(x, head_dim, position_ids, table);
  parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
    Matrix scratch(1, table.rotary_dim());
    for (Index t = begin; t < end; ++t) {
      const Index position = position_ids[static_cast<std::size_t>(t)];
      const Turn turn{table.cosine.row(position), table.sine.row(position), table.rotary_dim() / 2,
                      scratch.row(0)};
      for (Index head = 0; head < x.cols; head += head_dim) {
        // This head of the next row, on its way while this one is turned.
        fetch_lines(x.row(std::min(t + 1, end - 1)) + head + table.first_dim, 0,
                    at(table.rotary_dim()) * sizeof(float));
        turn_head(x.row(t) + head + table.first_dim, turn);
      }
    }
  });
}

void forward(MatrixView x, Index head_dim, std::span<const std::int32_t> ids, const RopeTable& table) {
  switch (table.pairs) {
    case RopePairs::kHalfSplit:
      return turn_heads(x, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_halves<kForward>(head, turn); });
    case RopePairs::kInterleaved:
      return turn_heads(x, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_neighbours<kForward>(head, turn); });
    case RopePairs::kInterleavedToHalves:
      return turn_heads(x, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_into_halves(head, turn); });
  }
}

void backward(MatrixView dx, Index head_dim, std::span<const std::int32_t> ids, const RopeTable& table) {
  switch (table.pairs) {
    case RopePairs::kHalfSplit:
      return turn_heads(dx, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_halves<kBackward>(head, turn); });
    case RopePairs::kInterleaved:
      return turn_heads(dx, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_neighbours<kBackward>(head, turn); });
    case RopePairs::kInterleavedToHalves:
      return turn_heads(dx, head_dim, ids, table,
                        [](float* head, const Turn& turn) { turn_back_from_halves(head, turn); });
  }
}

}  // namespace

RopeKernel reference_rope() {
  return {turn_plainly<kForward>, turn_plainly<kBackward>};
}
RopeKernel fused_rope() {
  return {forward, backward};
}

}  // namespace moeloom
