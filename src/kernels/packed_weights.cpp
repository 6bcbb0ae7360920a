#include "packed_weights.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

namespace moeloom {

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
  packed::Face& forward = state_->forward;
  packed::Face& input_grad = state_->input_grad;
  forward.reshape(masters.groups, masters.in(), masters.out());
  input_grad.reshape(masters.groups, masters.out(), masters.in());
  const Index forward_blocks = forward.column_blocks();
  const Index blocks = forward_blocks + input_grad.column_blocks();
  parallel_for(masters.groups * blocks, [&](Index task) {
    const Index group = task / blocks, block = task % blocks;
    if (block < forward_blocks)
      forward.pack_transposed(group, block, masters.group(group));
    else
      input_grad.pack(group, block - forward_blocks, masters.group(group));
  });
  state_->groups = masters.groups;
  ++state_->packings;
}

}  // namespace moeloom
