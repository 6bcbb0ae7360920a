#include "model/loss.hpp"

#include "kernels/elementwise/soft_cap.hpp"
#include "model/parts/linear.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/batch.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "row_loss.hpp"

namespace moeloom {
namespace {

using Targets = std::span<const std::int32_t>;

constexpr Index kRowsPerTask = 16;

void check(ConstMatrixView hidden, const HeadWeights& weights, Targets targets) {
  const ConstRows head = weights.weight;
  require(hidden.cols == head.cols(), "head_loss: hidden and head must have equally many columns");
  require(weights.bias.empty() || std::ssize(weights.bias) == head.rows(),
          "head_loss: a bias needs one number for each row of head");
  require(static_cast<Index>(targets.size()) == hidden.rows, "head_loss: one target for each row of hidden");
  for (const std::int32_t target : targets) {
    const bool known = target == kIgnored || (target >= 0 && target < head.rows());
    if (!known)
      require(false, "head_loss: target " + std::to_string(target) + " is neither ignored (" +
                         std::to_string(kIgnored) + ") nor below the vocabulary's " +
                         std::to_string(head.rows()));
  }
}

/// One stretch of rows: its logits, and which rows of the whole they are.
struct LogitRows {
  Index begin;
  MatrixView logits;
};

/// A stretch has one chunk of kSumChunkRows rows for each thread, because a product's chunks are what threads
/// share.
Index rows_at_once(Index rows, Index threads) {
  return std::min(rows, kSumChunkRows * threads);
}

/// Calls use(stretch) with the logits of all rows in turn.
template <typename Use>
void for_each_stretch(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                      const Use& use) {
  const Index rows = rows_at_once(hidden.rows, threads());
  Matrix logits = Matrix::uninitialised(rows, head.weight.rows());
  for (Index begin = 0; begin < hidden.rows; begin += rows) {
    const LogitRows stretch{begin, logits.view().rows_from(0, std::min(rows, hidden.rows - begin))};
    head_logits(kernel, hidden.rows_from(begin, stretch.logits.rows), head, stretch.logits);
    use(stretch);
  }
}

/// sum + row_loss(logits, target) of every row: computed on the rank's threads, added one row after the
/// other, so that the length of a stretch does not show.
template <typename RowLoss>
double add_rows(double sum, const LogitRows& stretch, Targets targets, RowLoss row_loss) {
  std::vector<double> losses(at(stretch.logits.rows));
  parallel_blocks(stretch.logits.rows, kRowsPerTask, [&](Index begin, Index end) {
    RowLoss mine = row_loss;
    for (Index i = begin; i < end; ++i)
      losses[at(i)] = mine(stretch.logits.row(i), stretch.logits.cols, targets[at(stretch.begin + i)]);
  });
  return std::accumulate(losses.begin(), losses.end(), sum);
}

/// The rows that have a target, one after the other: of the rest no logits are formed.
struct CountedRows {
  std::vector<Index> places;
  Matrix hidden;
  std::vector<std::int32_t> targets;

  CountedRows(ConstMatrixView all, Targets targets_of_all) {
    for (Index t = 0; t < all.rows; ++t)
      if (targets_of_all[at(t)] != kIgnored) places.push_back(t);
    hidden = Matrix::uninitialised(std::ssize(places), all.cols);
    for (Index i = 0; i < hidden.rows(); ++i) {
      std::copy_n(all.row(places[at(i)]), all.cols, hidden.row(i));
      targets.push_back(targets_of_all[at(places[at(i)])]);
    }
  }
  /// Rows of `counted` to their places, zeros between them.
  void put_back(ConstMatrixView counted, MatrixView all) const {
    Index t = 0;
    const auto clear_before = [&](Index end) {
      for (; t < end; ++t) std::fill_n(all.row(t), all.cols, 0.0f);
    };
    for (Index i = 0; i < counted.rows; ++i, ++t) {
      clear_before(places[at(i)]);
      std::copy_n(counted.row(i), all.cols, all.row(t));
    }
    clear_before(all.rows);
  }
};

bool all_counted(Targets targets) {
  return std::ranges::find(targets, kIgnored) == targets.end();
}

double loss_of_counted(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                       Targets targets) {
  double sum = 0.0;
  for_each_stretch(kernel, hidden, head,
                   [&](const LogitRows& stretch) { sum = add_rows(sum, stretch, targets, row_loss); });
  return sum;
}

double backward_of_counted(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& weights,
                           Targets targets, float scale, MatrixView d_hidden) {
  const ConstRows head = weights.weight;
  double sum = 0.0;
  for_each_stretch(kernel, hidden, weights, [&](const LogitRows& stretch) {
    const Index rows = stretch.logits.rows;
    sum = add_rows(sum, stretch, targets, RowBackward(weights, scale));
    kernel.input_grad(stretch.logits, head, d_hidden.rows_from(stretch.begin, rows), Write::kReplace);
    // A chunk at a time: how many a stretch has depends on the threads, and the order of sums must not.
    for (Index begin = 0; begin < rows; begin += kSumChunkRows) {
      const Index count = std::min(kSumChunkRows, rows - begin);
      const ConstMatrixView d_logits = stretch.logits.rows_from(begin, count);
      if (weights.grad.rows > 0)
        kernel.weight_grad(d_logits, hidden.rows_from(stretch.begin + begin, count), weights.grad,
                           Write::kAdd);
      if (!weights.bias_grad.empty()) add_row_sums(d_logits, weights.bias_grad);
    }
  });
  return sum;
}

}  // namespace

void head_logits(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                 MatrixView logits) {
  kernel.forward(hidden, head.weight, logits, Write::kReplace);
  if (head.bias.empty() && head.logit_scale == 1 && head.logit_cap == 0) return;
  const float scale = head.logit_scale;
  parallel_blocks(logits.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      float* row = logits.row(t);
      if (!head.bias.empty())
        for (Index j = 0; j < logits.cols; ++j) row[j] += head.bias[at(j)];
      for (Index j = 0; j < logits.cols; ++j) row[j] *= scale;
      if (head.logit_cap > 0) soft_cap(head.logit_cap, row, logits.cols);
    }
  });
}

double head_loss(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& head,
                 Targets targets) {
  check(hidden, head, targets);
  if (all_counted(targets)) return loss_of_counted(kernel, hidden, head, targets);
  const CountedRows counted(hidden, targets);
  return loss_of_counted(kernel, counted.hidden, head, counted.targets);
}

std::vector<double> head_token_losses(const DenseKernel& kernel, ConstMatrixView hidden,
                                      const HeadWeights& head, Targets targets) {
  check(hidden, head, targets);
  std::vector<double> losses(targets.size(), 0.0);
  const CountedRows counted(hidden, targets);
  for_each_stretch(kernel, counted.hidden, head, [&](const LogitRows& stretch) {
    parallel_blocks(stretch.logits.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const std::size_t row = at(stretch.begin + i);
        losses[at(counted.places[row])] =
            row_loss(stretch.logits.row(i), head.weight.rows(), counted.targets[row]);
      }
    });
  });
  return losses;
}

double head_loss_backward(const DenseKernel& kernel, ConstMatrixView hidden, const HeadWeights& weights,
                          Targets targets, float scale, MatrixView d_hidden) {
  const ConstRows head = weights.weight;
  const ConstMatrixView d_head = weights.grad;
  check(hidden, weights, targets);
  require(d_hidden.rows == hidden.rows && d_hidden.cols == hidden.cols,
          "head_loss: d_hidden must have the shape of hidden");
  require(d_head.rows == 0 || (d_head.rows == head.rows() && d_head.cols == head.cols()),
          "head_loss: d_head must have the shape of head, or no rows where that is frozen");
  require(weights.bias_grad.empty() || weights.bias_grad.size() == weights.bias.size(),
          "head_loss: the bias' gradient must have the size of the bias, or none where that is frozen");
  if (all_counted(targets)) return backward_of_counted(kernel, hidden, weights, targets, scale, d_hidden);
  const CountedRows counted(hidden, targets);
  Matrix d_counted = Matrix::uninitialised(counted.hidden.rows(), hidden.cols);
  const double sum = backward_of_counted(kernel, counted.hidden, weights, counted.targets, scale, d_counted);
  counted.put_back(d_counted, d_hidden);
  return sum;
}

double logits_bytes(Index tokens, Index words, Index threads) {
  return rows_bytes(rows_at_once(tokens, threads), {words});
}

}  // namespace moeloom
