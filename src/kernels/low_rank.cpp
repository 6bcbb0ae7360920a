#include "kernels/low_rank.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

void scale(MatrixView x, float factor) {
  if (factor == 1) return;
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      for (Index j = 0; j < x.cols; ++j) x.row(i)[j] *= factor;
  });
}

/// s, or s / (1 - p).
float scale_of(const LowRank& part) {
  if (!part.drops()) return part.scale;
  return static_cast<float>(static_cast<double>(part.scale) / (1 - part.dropout->share));
}

InputMask mask_of(const LowRank& part) {
  return InputMask(*part.dropout, part.stream);
}

RowKeys keys_of(RowKeys keys, const Stretch& rows) {
  require(std::ssize(keys) >= rows.end, "an addition that drops inputs needs a key for each row");
  return keys.subspan(at(rows.begin), at(rows.size()));
}

/// The columns of dy that an addition made.
ConstRows columns_of(const LowRank& part, ConstRows dy, Index out) {
  return dy.cols_from(part.column, out);
}

/// use(rows) of blocks of rows, in order.
void for_each_block(Index rows, auto&& use) {
  for (Index first = 0; first < rows; first += kDroppedRows)
    use(Stretch{first, std::min(first + kDroppedRows, rows)});
}

/// use(rows, what the addition reads of them), for all rows at once if it reads all of them.
void for_each_kept(const LowRank& part, RowKeys keys, ConstRows x, auto&& use) {
  if (!part.drops()) return use(Stretch{0, x.rows()}, x);
  RowMemory memory;
  for_each_block(x.rows(), [&](const Stretch& rows) {
    const Rows kept = memory.reshape_uninitialised(x.type(), rows.size(), x.cols());
    mask_of(part).keep(keys_of(keys, rows), x.rows_from(rows.begin, rows.size()), kept);
    use(rows, ConstRows(kept));
  });
}

/// x A^T times s.
Matrix low_of(const DenseKernel& kernel, const LowRank& part, ConstRows x, RowKeys keys) {
  Matrix low = Matrix::uninitialised(x.rows(), part.a.rows);
  for_each_kept(part, keys, x, [&](const Stretch& rows, ConstRows kept) {
    kernel.forward(kept, part.a, low.view().rows_from(rows.begin, rows.size()), Write::kReplace);
  });
  scale(low, scale_of(part));
  return low;
}

/// dy B times s.
Matrix d_low_of(const DenseKernel& kernel, const LowRank& part, ConstMatrixView dy) {
  Matrix d_low = Matrix::uninitialised(dy.rows, part.b.cols);
  kernel.input_grad(dy.cols_from(part.column, part.b.rows), part.b, d_low, Write::kReplace);
  scale(d_low, scale_of(part));
  return d_low;
}

GroupedWeights stacked(MatrixView weights, const GroupedRows& rows) {
  return {weights, rows.groups()};
}

MatrixView of_groups(MatrixView stacked, Index groups, const Stretch& held) {
  const Index each = stacked.rows / groups;
  return stacked.rows_from(held.begin * each, held.size() * each);
}

}  // namespace

bool drops_inputs(std::span<const LowRank> parts) {
  return std::ranges::any_of(parts, &LowRank::drops);
}

void add_low_rank(const DenseKernel& kernel, std::span<const LowRank> parts, ConstRows x, MatrixView y,
                  RowKeys keys) {
  for (const LowRank& part : parts)
    kernel.forward(low_of(kernel, part, x, keys), part.b, y.cols_from(part.column, part.b.rows), Write::kAdd);
}

void add_low_rank_input_grad(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                             MatrixView dx, RowKeys keys) {
  for (const LowRank& part : parts) {
    const Matrix d_low = d_low_of(kernel, part, dy);
    if (!part.drops()) {
      kernel.input_grad(d_low, part.a, dx, Write::kAdd);
      continue;
    }
    Matrix d_kept;
    for_each_block(dx.rows, [&](const Stretch& rows) {
      d_kept.reshape_uninitialised(rows.size(), dx.cols);
      kernel.input_grad(d_low.view().rows_from(rows.begin, rows.size()), part.a, d_kept, Write::kReplace);
      mask_of(part).add_kept(keys_of(keys, rows), d_kept, dx.rows_from(rows.begin, rows.size()));
    });
  }
}

void add_low_rank_weight_grads(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                               ConstRows x, ExactSums* sums, RowKeys keys) {
  for (const LowRank& part : parts) {
    if (part.d_a.rows == 0) continue;
    for_each_leaf(sums, dy.rows, [&](Index first, Index rows) {
      const ConstMatrixView dy_of = dy.rows_from(first, rows);
      const ConstRows x_of = x.rows_from(first, rows);
      const RowKeys keys_of_leaf = part.drops() ? keys_of(keys, {first, first + rows}) : RowKeys();
      kernel.weight_grad(columns_of(part, dy_of, part.b.rows), low_of(kernel, part, x_of, keys_of_leaf),
                         part.d_b, Write::kAdd);
      const Matrix d_low = d_low_of(kernel, part, dy_of);
      for_each_kept(part, keys_of_leaf, x_of, [&](const Stretch& block, ConstRows kept) {
        kernel.weight_grad(d_low.view().rows_from(block.begin, block.size()), kept, part.d_a, Write::kAdd);
      });
      if (sums == nullptr) return;
      sums->take(part.d_b);
      sums->take(part.d_a);
    });
  }
}

Index dropped_columns(Index rows, Index cols) {
  if (rows <= kDroppedGroupRows) return cols;
  return std::min(cols, std::max<Index>(kDroppedGroupRows * cols / rows / kGemmColumns, 1) * kGemmColumns);
}

double dropped_bytes(Index rows, Index cols) {
  return rows_bytes(std::min(rows, kDroppedRows), {cols});
}

double dropped_group_bytes(Index rows, Index cols) {
  const double pieces = rows_bytes(std::min(rows, kDroppedGroupRows), {cols});
  return std::max(pieces, rows_bytes(rows, {dropped_columns(rows, cols)}));
}

Index low_columns(std::span<const LowRank> parts, Index groups) {
  Index columns = 0;
  for (const LowRank& part : parts) columns += part.a.rows / groups;
  return columns;
}

namespace {

/// Some of the groups, and where their rows are; or some rows of one, whose sources are of no matter to what
/// is no sum over rows.
struct GroupStretch {
  Stretch groups;
  Stretch rows;
  Index part = 0;  // of a group: its rows here

  GroupedRows of(const GroupedRows& all) const {
    if (part > 0) return {{&part, 1}, 1};
    return {all.rows_per_source.subspan(at(groups.begin * all.sources), at(groups.size() * all.sources)),
            all.sources};
  }
};

/// use(stretch) of as many groups as have few rows together. A group's rows stay together: the sums over them
/// have one order.
void for_each_stretch(const GroupedRows& rows, auto&& use) {
  Index first = 0;
  for (Index begin = 0; begin < rows.groups();) {
    Index end = begin + 1, count = rows.of_group(begin);
    while (end < rows.groups() && count + rows.of_group(end) <= kDroppedGroupRows)
      count += rows.of_group(end++);
    use(GroupStretch{{begin, end}, {first, first + count}});
    begin = end;
    first += count;
  }
}

/// The same, but a group of many rows in pieces, where products may be cut.
void for_each_piece(const GroupedRows& rows, auto&& use) {
  static_assert(kDroppedGroupRows % kGemmRows == 0);
  for_each_stretch(rows, [&](const GroupStretch& some) {
    if (some.rows.size() <= kDroppedGroupRows) return use(some);
    for (Index first = some.rows.begin; first < some.rows.end; first += kDroppedGroupRows) {
      const Stretch piece{first, std::min(first + kDroppedGroupRows, some.rows.end)};
      use(GroupStretch{some.groups, piece, piece.size()});
    }
  });
}

/// use(stretch, what the addition reads of its rows), for all groups at once if it reads all of them.
void for_each_kept(const LowRank& part, RowKeys keys, ConstRows x, const GroupedRows& rows, auto&& use) {
  if (!part.drops()) return use(GroupStretch{{0, rows.groups()}, {0, x.rows()}}, x);
  RowMemory memory;
  for_each_piece(rows, [&](const GroupStretch& some) {
    const Rows kept = memory.reshape_uninitialised(x.type(), some.rows.size(), x.cols());
    mask_of(part).keep(keys_of(keys, some.rows), x.rows_from(some.rows.begin, some.rows.size()), kept);
    use(some, ConstRows(kept));
  });
}

/// use(whole groups, columns, what the addition reads of these).
void for_each_kept_panel(const LowRank& part, RowKeys keys, ConstRows x, const GroupedRows& rows,
                         auto&& use) {
  if (!part.drops()) return use(GroupStretch{{0, rows.groups()}, {0, x.rows()}}, Stretch{0, x.cols()}, x);
  RowMemory memory;
  for_each_stretch(rows, [&](const GroupStretch& some) {
    const Index width = dropped_columns(some.rows.size(), x.cols());
    for (Index first = 0; first < x.cols(); first += width) {
      const Index cols = std::min(width, x.cols() - first);
      const Rows kept = memory.reshape_uninitialised(x.type(), some.rows.size(), cols);
      const ConstRows panel = x.rows_from(some.rows.begin, some.rows.size()).cols_from(first, cols);
      mask_of(part).keep(keys_of(keys, some.rows), panel, kept, first);
      use(some, Stretch{first, first + cols}, ConstRows(kept));
    }
  });
}

/// U of the groups' rows; a: of these groups.
MatrixView low_of(const GroupedMatmulKernel& kernel, const LowRank& part, MatrixView a, ConstRows x,
                  const GroupedRows& rows, Matrix& low, RowKeys keys) {
  low.reshape_uninitialised(x.rows(), stacked(a, rows).out());
  for_each_kept(part, keys, x, rows, [&](const GroupStretch& some, ConstRows kept) {
    const GroupedRows some_rows = some.of(rows);
    kernel.forward(stacked(of_groups(a, rows.groups(), some.groups), some_rows), PackedWeights(), kept,
                   some_rows, low.view().rows_from(some.rows.begin, some.rows.size()));
  });
  scale(low, scale_of(part));
  return low;
}

/// dx += m .* (dU A)
void add_kept_input_grad(const GroupedMatmulKernel& kernel, const LowRank& part, ConstMatrixView d_low,
                         const GroupedRows& rows, MatrixView dx, RowKeys keys) {
  Matrix d_kept;
  for_each_piece(rows, [&](const GroupStretch& some) {
    const GroupedRows some_rows = some.of(rows);
    d_kept.reshape_uninitialised(some.rows.size(), dx.cols);
    kernel.input_grad(stacked(of_groups(part.a, rows.groups(), some.groups), some_rows), PackedWeights(),
                      d_low.rows_from(some.rows.begin, some.rows.size()), some_rows, d_kept);
    mask_of(part).add_kept(keys_of(keys, some.rows), d_kept, dx.rows_from(some.rows.begin, some.rows.size()));
  });
}

/// use(part, its columns of d_low)
void for_each_part(std::span<const LowRank> parts, Index groups, auto&& d_low, auto&& use) {
  Index column = 0;
  for (const LowRank& part : parts) {
    const Index rank = part.a.rows / groups;
    use(part, d_low.cols_from(column, rank));
    column += rank;
  }
}

}  // namespace

void add_low_rank(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows x,
                  const GroupedRows& rows, MatrixView y, Matrix& low, RowKeys keys) {
  for (const LowRank& part : parts) {
    const GroupedWeights b = stacked(part.b, rows);
    kernel.add_forward(b, low_of(kernel, part, part.a, x, rows, low, keys), rows,
                       y.cols_from(part.column, b.out()));
  }
}

void add_low_rank_input_grad(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows dy,
                             const GroupedRows& rows, MatrixView dx, MatrixView d_low, RowKeys keys) {
  for_each_part(parts, rows.groups(), d_low, [&](const LowRank& part, MatrixView d_low_of_part) {
    const GroupedWeights b = stacked(part.b, rows);
    kernel.input_grad(b, PackedWeights(), columns_of(part, dy, b.out()), rows, d_low_of_part);
    scale(d_low_of_part, scale_of(part));
    if (part.drops()) return add_kept_input_grad(kernel, part, d_low_of_part, rows, dx, keys);
    kernel.add_input_grad(stacked(part.a, rows), d_low_of_part, rows, dx);
  });
}

void low_rank_weight_grads(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, Index groups,
                           const Stretch& held, ConstRows dy, ConstMatrixView d_low, ConstRows x,
                           const GroupedRows& rows, ExactSums* sums, Write mode, Matrix& low, RowKeys keys) {
  for_each_part(parts, groups, d_low, [&](const LowRank& part, ConstMatrixView d_low_of_part) {
    if (part.d_a.rows == 0) return;
    const auto gradients = [&](MatrixView all, const Stretch& some) {
      return GroupedGradients(of_groups(all, groups, some), sums);
    };
    const MatrixView a = of_groups(part.a, groups, held);
    const Index out = part.b.rows / groups;
    kernel.weight_grad(columns_of(part, dy, out), low_of(kernel, part, a, x, rows, low, keys), rows,
                       gradients(part.d_b, held), mode);
    for_each_kept_panel(
        part, keys, x, rows, [&](const GroupStretch& some, const Stretch& columns, ConstRows kept) {
          const MatrixView d_a = part.d_a.cols_from(columns.begin, columns.size());
          kernel.weight_grad(d_low_of_part.rows_from(some.rows.begin, some.rows.size()), kept, some.of(rows),
                             gradients(d_a, {held.begin + some.groups.begin, held.begin + some.groups.end}),
                             mode);
        });
  });
}

}  // namespace moeloom
