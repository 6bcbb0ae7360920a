// Rotary position embedding of a caller's arrays: a head is a row, so heads may lie at any one distance.
#include "moeloom/kernels/elementwise/rope.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// Both [T, r], whose angles stand twice: half a row apart, or side by side. -> where the r / 2 different
/// ones are.
std::vector<Index> different_columns(ConstMatrixView cosine, ConstMatrixView sine) {
  const Index half = cosine.cols / 2;
  bool behind = true, beside = true;
  for (const ConstMatrixView angles : {cosine, sine})
    for (Index t = 0; t < angles.rows; ++t)
      for (Index i = 0; i < half; ++i) {
        behind = behind && angles(t, i) == angles(t, half + i);
        beside = beside && angles(t, 2 * i) == angles(t, 2 * i + 1);
      }
  check(behind || beside,
        [] { return "cos and sin must hold each angle twice, half a row apart or side by side"; });
  std::vector<Index> columns(at(half));
  for (Index i = 0; i < half; ++i) columns[at(i)] = behind ? i : 2 * i;
  return columns;
}

Matrix columns_of(ConstMatrixView angles, const std::vector<Index>& columns) {
  Matrix some = Matrix::uninitialised(angles.rows, std::ssize(columns));
  for (Index t = 0; t < angles.rows; ++t)
    for (Index i = 0; i < some.cols(); ++i) some.row(t)[i] = angles(t, columns[at(i)]);
  return some;
}

RopePairs pairs_of(std::int32_t pairs) {
  switch (pairs) {
    case ML_HALVES:
      return RopePairs::kHalfSplit;
    case ML_INTERLEAVED:
      return RopePairs::kInterleaved;
    case ML_INTERLEAVED_TO_HALVES:
      return RopePairs::kInterleavedToHalves;
    default:
      throw ShapeError("pairs are ML_HALVES, ML_INTERLEAVED or ML_INTERLEAVED_TO_HALVES");
  }
}

RopeTable table_of(const ml_array& cosine, const ml_array& sine, RopePairs pairs) {
  const RowsIn cos(cosine, "cos"), sin(sine, "sin");
  const std::vector<Index> columns = different_columns(cos.fp32(), sin.fp32());
  RopeTable table;
  table.cosine = columns_of(cos.fp32(), columns);
  table.sine = columns_of(sin.fp32(), columns);
  table.pairs = pairs;
  return table;
}

bool same_place(const ml_array& a, const ml_array& b) {
  return a.data == b.data && a.dtype == b.dtype && std::equal(a.stride, a.stride + a.ndim, b.stride);
}

using Turn = void (*)(MatrixView x, Index head_dim, std::span<const std::int32_t> position_ids,
                      const RopeTable& table);

/// x, y [T, H, d].
void turn_sequence(const ml_array& x, const RopeTable& table, Turn turn, const ml_array& y) {
  const Index tokens = x.shape[0], heads = x.shape[1];
  check(tokens <= std::numeric_limits<std::int32_t>::max(),
        [] { return "x has more tokens than positions have numbers"; });
  std::vector<std::int32_t> positions(at(tokens * heads));
  for (Index row = 0; row < tokens * heads; ++row)
    positions[at(row)] = static_cast<std::int32_t>(row / heads);
  const bool in_place = same_place(x, y);  // then what is there is read, where it is copied
  const RowsOut rows(y, "y", InPlace::kFp32, in_place ? Write::kAdd : Write::kReplace);
  if (!in_place) load(x, rows.fp32());
  turn(rows.fp32(), x.shape[2], positions, table);
  rows.store();
}

void turn_all(const ml_array* x, const ml_array* cosine, const ml_array* sine, RopePairs pairs, Turn turn,
              const ml_array* y) {
  check_floats(check_array(x, "x"), "x");
  check(x->ndim == 3 || x->ndim == 4, [] { return "x must be [T, H, d] or [B, T, H, d]"; });
  check_array(y, "y", shape_of(*x));
  const Index tokens = x->shape[x->ndim - 3], width = cols_of(*x);
  check_array(cosine, "cos");
  const Index sequences = cosine->ndim == 3 ? cosine->shape[0] : 1, turned = cols_of(*cosine);
  if (cosine->ndim == 3)
    check_array(cosine, "cos", {kAny, tokens, kAny});
  else
    check_array(cosine, "cos", {tokens, kAny});
  check_array(sine, "sin", shape_of(*cosine));
  check(turned % 2 == 0 && turned <= width, [&] {
    return "cos has " + std::to_string(turned) + " columns, which must be even and at most the " +
           std::to_string(width) + " elements of a head";
  });
  const Index batches = x->ndim == 4 ? x->shape[0] : 1;
  check(sequences == 1 || sequences == batches, [] { return "cos is [B, T, r] with another B than x"; });
  RopeTable table;
  for (Index b = 0; b < batches; ++b) {
    if (b < sequences)
      table = cosine->ndim == 3 ? table_of(part_of(*cosine, b), part_of(*sine, b), pairs)
                                : table_of(*cosine, *sine, pairs);
    const bool several = x->ndim == 4;
    turn_sequence(several ? part_of(*x, b) : *x, table, turn, several ? part_of(*y, b) : *y);
  }
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_rope(const ml_array* x, const ml_array* cosine, const ml_array* sine, int32_t pairs,
                  const ml_array* y) {
  return guarded([&] { turn_all(x, cosine, sine, pairs_of(pairs), moeloom::fused_rope().forward, y); });
}

ml_status ml_rope_grad(const ml_array* dy, const ml_array* cosine, const ml_array* sine, int32_t pairs,
                       const ml_array* dx) {
  return guarded([&] { turn_all(dy, cosine, sine, pairs_of(pairs), moeloom::fused_rope().backward, dx); });
}
