#include "tensor/scaled.hpp"

#include "moeloom/base/parallel.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

/// use(source row, target row, columns) of every row, shared among the threads.
template <typename Use>
void for_rows(ConstMatrixView source, MatrixView target, const Use& use) {
  parallel_blocks(source.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) use(source.row(t), target.row(t), source.cols);
  });
}

}  // namespace

void add_scaled(ConstMatrixView source, float factor, MatrixView target) {
  for_rows(source, target, [=](const float* from, float* to, Index count) {
    for (Index j = 0; j < count; ++j) to[j] += factor * from[j];
  });
}

void copy_scaled(ConstMatrixView source, float factor, MatrixView target) {
  for_rows(source, target, [=](const float* from, float* to, Index count) {
    for (Index j = 0; j < count; ++j) to[j] = factor * from[j];
  });
}

}  // namespace moeloom
