// Both faces are written from one reading of the masters, with stores that leave the caches alone: packing
// moves three times the weights' bytes (twice in bf16), and nothing else of it costs as much.
#include "packed_weights.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "transpose.hpp"

namespace moeloom {
namespace {

using packed::kTileCols;

/// kTileCols rows of a master and columns_of_block() of its columns, from `row` and `column` on.
struct Block {
  Index group, row, column;
};
template <typename Element>
constexpr Index columns_of_block() {
  return kTileCols * Element::kNumbers;
}

/// The block's columns, a panel after another: the depth goes down the rows.
template <typename Element>
void pack_down(const float* master, Index stride, const Block& block, packed::Face& face) {
  for (Index left = 0; left < columns_of_block<Element>(); left += kTileCols) {
    float* words = face.row(block.group, (block.column + left) / kTileCols, block.row / Element::kNumbers);
    for (Index i = 0; i < kTileCols; i += Element::kNumbers, words += kTileCols)
      for (Index j = 0; j < kTileCols; j += kTransposed) {
        const float* row = master + i * stride + left + j;
        stream(Element::words_down(row, row + stride), words + j);
      }
  }
}

/// The block's rows side by side: the depth goes along them.
template <typename Element>
void pack_along(const float* master, Index stride, const Block& block, packed::Face& face) {
  float* words = face.row(block.group, block.row / kTileCols, block.column / Element::kNumbers);
  for (Index k = 0; k < kTileCols; k += kTransposed)
    for (Index i = 0; i < kTileCols; i += kTransposed) {
      const float* from = master + i * stride + k * Element::kNumbers;
      EightRows eight;
      for (Index row = 0; row < kTransposed; ++row) eight[row] = Element::words_along(from + row * stride);
      transpose(eight);
      for (Index row = 0; row < kTransposed; ++row) stream(eight[row], words + (k + row) * kTileCols + i);
    }
}

/// A block at the lower or right edge: what the master lacks are zeros, where the face has a place for it.
template <typename Element>
void pack_edge(ConstMatrixView master, const Block& block, PackedWeights::State& state) {
  const Index rows = std::min<Index>(kTileCols, master.rows - block.row);
  const Index columns = std::min(columns_of_block<Element>(), master.cols - block.column);
  const auto at = [&](Index i, Index j) {
    return i < rows && j < columns ? master.row(block.row + i)[block.column + j] : 0.0f;
  };
  for (Index i = 0; i < rows; i += Element::kNumbers)
    for (Index j = 0; j < ceil_div(columns, kTileCols) * kTileCols; ++j)
      state.input_grad.row(block.group, (block.column + j) / kTileCols,
                           (block.row + i) / Element::kNumbers)[j % kTileCols] =
          Element::word(at(i, j), at(i + 1, j));
  for (Index j = 0; j < columns; j += Element::kNumbers)
    for (Index i = 0; i < kTileCols; ++i)
      state.forward.row(block.group, block.row / kTileCols, (block.column + j) / Element::kNumbers)[i] =
          Element::word(at(i, j), at(i, j + 1));
}

/// kTileCols rows of one group's master, from left to right.
template <typename Element>
void pack_strip(ConstMatrixView master, Index group, Index row, PackedWeights::State& state) {
  constexpr Index kReadAhead = 4 * kTileCols;
  const bool whole = row + kTileCols <= master.rows;
  for (Index column = 0; column < master.cols; column += columns_of_block<Element>()) {
    const Block block{group, row, column};
    if (!whole || column + columns_of_block<Element>() > master.cols) {
      pack_edge<Element>(master, block, state);
      continue;
    }
    const float* from = master.row(row) + column;
    for (Index i = 0; i < kTileCols; ++i) __builtin_prefetch(from + i * master.stride + kReadAhead);
    pack_down<Element>(from, master.stride, block, state.input_grad);
    pack_along<Element>(from, master.stride, block, state.forward);
  }
  finish_streaming();
}

template <typename Element>
void pack_groups(const GroupedWeights& masters, PackedWeights::State& state) {
  state.forward.reshape(masters.groups, masters.in(), masters.out(), Element::kNumbers);
  state.input_grad.reshape(masters.groups, masters.out(), masters.in(), Element::kNumbers);
  const Index strips = ceil_div(masters.out(), kTileCols);
  parallel_for(masters.groups * strips, [&](Index task) {
    const Index group = task / strips;
    pack_strip<Element>(masters.group(group), group, task % strips * kTileCols, state);
  });
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

DType PackedWeights::element() const {
  return state_->element;
}

void PackedWeights::pack(const GroupedWeights& masters, DType element) {
  masters.check();
  require(element == DType::kF32 || element == DType::kBF16, "weights are packed as fp32 or bf16");
  if (element == DType::kBF16)
    pack_groups<packed::Bf16>(masters, *state_);
  else
    pack_groups<packed::Fp32>(masters, *state_);
  state_->element = element;
  state_->groups = masters.groups;
  ++state_->packings;
}

}  // namespace moeloom
