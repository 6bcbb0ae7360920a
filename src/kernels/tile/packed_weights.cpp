// Both faces are written from one reading of the masters, with stores that leave the caches alone: packing
// moves three times the weights' bytes (twice in bf16), and nothing else of it costs as much.
#include "tile/packed_weights.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "tile/pack_block.hpp"

namespace moeloom {
namespace {

using namespace packed;

/// kBlockNumbers rows of one group's master, from left to right, a square at a time.
template <typename Element, typename Number>
void pack_strip(Master<Number> master, Index group, Index row, PackedWeights::State& state) {
  constexpr Index kSide = kBlockNumbers<Element>;
  constexpr Index kReadAhead = 4 * kSide;
  for (Index column = 0; column < master.cols; column += kSide) {
    const Number* from = master.row(row) + column;
    for (Index i = 0; i < kSide; ++i) __builtin_prefetch(from + i * master.stride + kReadAhead);
    for (Index left = column; left < std::min(column + kSide, master.cols); left += kTileCols) {
      const Index panel = left / kTileCols;
      pack_block<Element, Down, Streamed>(master, panel, row,
                                          state.input_grad.row(group, panel, row / Element::kNumbers));
    }
    for (Index top = row; top < std::min(row + kSide, master.rows); top += kTileCols) {
      const Index panel = top / kTileCols;
      pack_block<Element, Along, Streamed>(master, panel, column,
                                           state.forward.row(group, panel, column / Element::kNumbers));
    }
  }
  finish_streaming();
}

template <typename Element>
void pack_groups(const GroupedWeights& masters, PackedWeights::State& state) {
  state.forward.reshape(masters.groups, masters.in(), masters.out(), Element::kNumbers);
  state.input_grad.reshape(masters.groups, masters.out(), masters.in(), Element::kNumbers);
  constexpr Index kSide = kBlockNumbers<Element>;
  const Index strips = ceil_div(masters.out(), kSide);
  parallel_for(masters.groups * strips, [&](Index task) {
    const Index group = task / strips;
    masters.group(group).visit(
        [&](auto master) { pack_strip<Element>(master, group, task % strips * kSide, state); });
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
