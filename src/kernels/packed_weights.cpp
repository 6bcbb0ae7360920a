// Both faces are written from one reading of the masters, with stores that leave the caches alone: packing
// moves three times the weights' bytes, and nothing else of it costs as much.
#include "packed_weights.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "transpose.hpp"

namespace moeloom {
namespace {

using packed::kTileCols;

/// kTileCols rows of a master and as many of its columns: rows [row, row + count) x [column, column + width).
struct Block {
  Index group, row, column;
};

/// One row of a panel after another.
void copy_block(const float* master, Index stride, float* panel) {
  for (Index i = 0; i < kTileCols; ++i, master += stride, panel += kTileCols)
    for (Index j = 0; j < kTileCols; j += kTransposed) stream(load8(master + j), panel + j);
}

void transpose_block(const float* master, Index stride, float* panel) {
  for (Index k = 0; k < kTileCols; k += kTransposed)
    for (Index i = 0; i < kTileCols; i += kTransposed) {
      EightRows block;
      for (Index row = 0; row < kTransposed; ++row) block[row] = load8(master + (i + row) * stride + k);
      transpose(block);
      for (Index row = 0; row < kTransposed; ++row) stream(block[row], panel + (k + row) * kTileCols + i);
    }
}

/// A block at the lower or right edge: what the master lacks are zeros, where the face has a place for it.
void pack_edge(ConstMatrixView master, const Block& block, PackedWeights::State& state) {
  const Index rows = std::min<Index>(kTileCols, master.rows - block.row);
  const Index columns = std::min<Index>(kTileCols, master.cols - block.column);
  const auto at = [&](Index i, Index j) {
    return i < rows && j < columns ? master.row(block.row + i)[block.column + j] : 0.0f;
  };
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < kTileCols; ++j)
      state.input_grad.row(block.group, block.column / kTileCols, block.row + i)[j] = at(i, j);
  for (Index j = 0; j < columns; ++j)
    for (Index i = 0; i < kTileCols; ++i)
      state.forward.row(block.group, block.row / kTileCols, block.column + j)[i] = at(i, j);
}

/// kTileCols rows of one group's master, from left to right.
void pack_strip(ConstMatrixView master, Index group, Index row, PackedWeights::State& state) {
  constexpr Index kReadAhead = 4 * kTileCols;
  const bool whole = row + kTileCols <= master.rows;
  for (Index column = 0; column < master.cols; column += kTileCols) {
    if (!whole || column + kTileCols > master.cols) {
      pack_edge(master, {group, row, column}, state);
      continue;
    }
    const float* from = master.row(row) + column;
    for (Index i = 0; i < kTileCols; ++i) __builtin_prefetch(from + i * master.stride + kReadAhead);
    copy_block(from, master.stride, state.input_grad.row(group, column / kTileCols, row));
    transpose_block(from, master.stride, state.forward.row(group, row / kTileCols, column));
  }
  finish_streaming();
}

}  // namespace

PackedWeights::PackedWeights() : state_(std::make_unique<State>()) {}
PackedWeights::PackedWeights(PackedWeights&&) noexcept = default;
PackedWeights& PackedWeights::operator=(PackedWeights&&) noexcept = default;
PackedWeights::~PackedWeights() = default;

bool PackedWeights::empty() const {
  return state_->packings == 0;
}

Index PackedWeights::bytes() const {
  return state_->forward.bytes() + state_->input_grad.bytes();
}

Index PackedWeights::packings() const {
  return state_->packings;
}

void PackedWeights::pack(const GroupedWeights& masters) {
  require(masters.groups * masters.out() == masters.stacked.rows,
          "stacked weights need the same number of rows for every group");
  state_->forward.reshape(masters.groups, masters.in(), masters.out());
  state_->input_grad.reshape(masters.groups, masters.out(), masters.in());
  const Index strips = ceil_div(masters.out(), kTileCols);
  parallel_for(masters.groups * strips, [&](Index task) {
    const Index group = task / strips;
    pack_strip(masters.group(group), group, task % strips * kTileCols, *state_);
  });
  state_->groups = masters.groups;
  ++state_->packings;
}

}  // namespace moeloom
