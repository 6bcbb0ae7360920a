// Muon's weights, whole matrices, a batch of one shape at a time.
#include "moeloom/base/parallel.hpp"
#include "train/sharded_optimizer.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

/// Of a parameter's weights, as many as are orthogonalised together.
Index weights_at_once(const ParameterSpec& spec) {
  return std::clamp<Index>(ShardedOptimizer::kBucketElements / (spec.rows / spec.groups * spec.cols), 1,
                           spec.groups);
}

/// source [rows, cols] -> target [cols, rows].
void transpose(ConstMatrixView source, MatrixView target) {
  constexpr Index kTile = 32;
  for (Index i = 0; i < source.rows; i += kTile)
    for (Index j = 0; j < source.cols; j += kTile)
      for (Index r = i; r < std::min(i + kTile, source.rows); ++r)
        for (Index c = j; c < std::min(j + kTile, source.cols); ++c) target.row(c)[r] = source.row(r)[c];
}

/// weights = keep weights - step update; those in bf16 are rounded by `random` and their place, from
/// `begin` on, give.
void subtract(float step, ConstMatrixView update, float keep, const StoredRows& weights,
              const RandomBits& random, Index begin) {
  Matrix memory, changed = Matrix::uninitialised(1, update.cols);
  for (Index i = 0; i < update.rows; ++i) {
    const StoredRows row = weights.rows_from(i, 1);
    const ConstMatrixView old = row.read(memory);
    float* const to = changed.row(0);
    for (Index j = 0; j < update.cols; ++j) to[j] = keep * old(0, j) - step * update(i, j);
    if (row.storage() != Storage::kBf16) {
      row.write(changed.view().flat());
      continue;
    }
    const Index place = begin + i * update.cols;
    for (Index j = 0; j < update.cols; ++j)
      row.high()[j] = bf16_at_random(to[j], RandomBits::another_16(random.of(place + j)));
  }
}

}  // namespace

/// Weights of consecutive groups of one parameter, each with its blocks in blocks_.
struct ShardedOptimizer::MatrixBatch {
  Index parameter = 0;
  std::vector<Stretch> blocks;  // of each weight
  Index size() const { return std::ssize(blocks); }
};

void ShardedOptimizer::update_matrices(double learning_rate, double clip,
                                       const std::vector<std::vector<Index>>& rows_per_expert) {
  MatrixBatch batch;
  const auto run = [&] {
    if (batch.size() > 0) update_batch(batch, learning_rate, clip);
    batch.blocks.clear();
  };
  for (std::size_t next = 0; next < blocks_.size();) {
    const OwnedBlock& first = blocks_[next];
    const std::size_t begin = std::exchange(next, next + unit_length(std::span(blocks_).subspan(next)));
    const Parameter& parameter = store_.parameters()[at(first.parameter)];
    if (first.second >= 0 || is_starved(parameter.spec, first.group, rows_per_expert)) continue;
    if (first.parameter != batch.parameter || batch.size() == weights_at_once(parameter.spec)) run();
    batch.parameter = first.parameter;
    batch.blocks.push_back({static_cast<Index>(begin), static_cast<Index>(next)});
  }
  run();
}

void ShardedOptimizer::update_batch(const MatrixBatch& batch, double learning_rate, double clip) {
  const Parameter& parameter = store_.parameters()[at(batch.parameter)];
  const Index rows = parameter.spec.rows / parameter.spec.groups, cols = parameter.spec.cols;
  updates_.reshape_uninitialised(batch.size() * rows, cols);
  const Index first_block = batch.blocks.front().begin, blocks = batch.blocks.back().end - first_block;
  std::vector<Index> weight_of(at(blocks));  // none of a starved expert, between two weights
  for (Index weight = 0; weight < batch.size(); ++weight)
    for (Index block = batch.blocks[at(weight)].begin; block < batch.blocks[at(weight)].end; ++block)
      weight_of[at(block - first_block)] = weight + 1;
  parallel_for(blocks, [&](Index i) {
    if (weight_of[at(i)] == 0) return;
    const OwnedBlock& block = blocks_[at(first_block + i)];
    const Index inside = block.block * kBlockElements;
    float* const update = updates_.row((weight_of[at(i)] - 1) * rows) + inside;
    with_gradient(block, [&](auto gradient) {
      muon_momentum(clip, gradient, moments_of(block, Moment::kFirst), rounding_of(block),
                    {update, at(block.count)});
    });
  });
  const double decay = settings_.adamw.weight_decay;
  const auto keep = static_cast<float>(1 - learning_rate * decay);
  for (const Stretch& matrix : matrices_of(parameter.spec)) {
    const bool is_tall = matrix.size() > cols;
    const Index m = is_tall ? cols : matrix.size(), n = is_tall ? matrix.size() : cols;
    const auto rows_of = [&](MatrixView weights, Index group) {
      return weights.rows_from(group * rows + matrix.begin, matrix.size());
    };
    stacked_.reshape_uninitialised(batch.size() * m, n);
    parallel_for(batch.size(), [&](Index weight) {
      const MatrixView to = stacked_.view().rows_from(weight * m, m);
      is_tall ? transpose(rows_of(updates_, weight), to) : copy(rows_of(updates_, weight), to);
    });
    orthogonalise(batch.size(), kMuonIterations, stacked_, orthogonalise_);
    const auto step = static_cast<float>(learning_rate * muon_scale(matrix.size(), cols));
    parallel_for(batch.size(), [&](Index weight) {
      const MatrixView o = stacked_.view().rows_from(weight * m, m);
      const MatrixView update = rows_of(updates_, weight);
      is_tall ? transpose(o, update) : copy(o, update);
      const OwnedBlock& first = blocks_[at(batch.blocks[at(weight)].begin)];
      const Index row = first.group * rows + matrix.begin;
      subtract(step, update, keep, parameter.stored().rows_from(row, matrix.size()),
               RandomBits(rounding_of(first)), matrix.begin * cols);
    });
  }
}

double ShardedOptimizer::matrix_bytes(const std::vector<ParameterSpec>& specs, OptimizerKind optimizer) {
  double largest = 0;
  for (const ParameterSpec& spec : specs) {
    if (!is_of_muon(spec, optimizer)) continue;
    const Index weights = weights_at_once(spec);
    double of_matrix = 0;
    for (const Stretch& matrix : matrices_of(spec)) {
      const Index m = std::min(matrix.size(), spec.cols), n = std::max(matrix.size(), spec.cols);
      const double stacked = rows_bytes(weights * m, {n});
      of_matrix = std::max(of_matrix, stacked + OrthogonaliseWorkspace::bytes_of(weights * m, m, n));
    }
    const double updates = rows_bytes(weights * (spec.rows / spec.groups), {spec.cols});
    largest = std::max(largest, updates + of_matrix);
  }
  return largest;
}

}  // namespace moeloom
