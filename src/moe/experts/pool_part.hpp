// One expert of some rank of the node, and the rows of a task, as this process sees them.
#pragma once

#include "moeloom/moe/experts/experts.hpp"
#include "moeloom/moe/experts/pool_board.hpp"

namespace moeloom {

/// What others must know of a rank's weights, gradients and adapters, which lie in its part of `memory`.
/// Throws ShapeError for what lies elsewhere, or more additions to a product than a board has places for.
PoolPlaces places_of_weights(const NodeMemory& memory, const ExpertShard& shard);

class PoolPart {
 public:
  /// `shape`: of this rank's own shard, whose widths are everyone's.
  PoolPart(const PoolBoard& board, int owner, const PoolTask& task, const KernelTable& kernels,
           const ExpertShard& shape)
      : shape_(shape),
        board_(board),
        owner_(owner),
        task_(task),
        places_(board.places(owner)),
        element_(kernels.grouped_matmul.element),
        hidden_(shape.gate_up.cols),
        inter_(shape.down.cols) {}

  Index inter() const { return inter_; }
  GroupedWeights gate_up() const { return {numbers(places_.gate_up, 2 * inter_, hidden_), 1}; }
  GroupedWeights down() const { return {numbers(places_.down, hidden_, inter_), 1}; }
  MatrixView d_gate_up() const { return weight(places_.d_gate_up, 2 * inter_, hidden_); }
  MatrixView d_down() const { return weight(places_.d_down, hidden_, inter_); }
  MatrixView d_gate_up_bias() const { return weight(places_.d_gate_up_bias, 2 * inter_, 1); }
  MatrixView d_down_bias() const { return weight(places_.d_down_bias, hidden_, 1); }
  /// A row each.
  ExpertBiases biases() const {
    if (!shape_.biases.any()) return {};
    return {weight(places_.gate_up_bias, 1, 2 * inter_), weight(places_.down_bias, 1, hidden_)};
  }
  /// The owner's: a rank without experts has no factors to take their shapes from.
  std::vector<LowRank> gate_up_adapter() const { return adapter(places_.gate_up_adapter, hidden_); }
  std::vector<LowRank> down_adapter() const { return adapter(places_.down_adapter, inter_); }
  const ExpertShard& shape() const { return shape_; }

  MatrixView x() const { return fp32(places_.rows, hidden_); }
  MatrixView z() const { return fp32(places_.z, 2 * inter_); }
  MatrixView output() const { return fp32(places_.output, hidden_); }
  ConstMatrixView d_rows() const { return fp32(places_.d_rows, hidden_); }
  std::span<float> weights() const { return fp32(places_.weights, 1).flat(); }
  std::span<float> d_weights() const { return fp32(places_.d_weights, 1).flat(); }
  Rows activated() const { return rows(places_.activated, inter_); }
  /// In fp32 it is z().
  Rows d_z() const { return rows(places_.d_z, 2 * inter_); }
  MatrixView d_low_gate_up() const { return fp32(places_.d_low_gate_up, ranks_of(places_.gate_up_adapter)); }
  MatrixView d_low_down() const { return fp32(places_.d_low_down, ranks_of(places_.down_adapter)); }

 private:
  MatrixView weight(Index place, Index rows, Index cols) const {
    return {board_.at_place<float>(owner_, place) + task_.expert * rows * cols, rows, cols};
  }
  ConstRows numbers(PoolPlaces::Weight place, Index rows, Index cols) const {
    if (place.type == DType::kF32) return weight(place.offset, rows, cols);
    const auto* first = board_.at_place<std::uint16_t>(owner_, place.offset);
    return ConstHalfView(first + task_.expert * rows * cols, rows, cols, place.type);
  }
  MatrixView fp32(Index place, Index cols) const {
    return {board_.at_place<float>(owner_, place) + task_.row * cols, task_.rows, cols};
  }
  Rows rows(Index place, Index cols) const {
    return rows_in(board_.at_place<float>(owner_, place) + task_.row * floats_of_row(element_, cols),
                   element_, task_.rows, cols);
  }
  std::vector<LowRank> adapter(const PoolPlaces::Adapter& places, Index in) const;
  static Index ranks_of(const PoolPlaces::Adapter& places);

  const ExpertShard& shape_;
  const PoolBoard& board_;
  int owner_;
  const PoolTask& task_;
  const PoolPlaces& places_;
  DType element_;
  Index hidden_, inter_;
};

}  // namespace moeloom
