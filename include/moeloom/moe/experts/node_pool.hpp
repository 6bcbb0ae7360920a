// The experts of a node's ranks as one pool of work: any rank runs any part of it, in the memory of the rank
// that owns it, so that an expert or a rank with most of the rows costs the node no more than even ones.
//
// Weights, gradients and rows lie in the node's memory; nothing of them moves. Every rank takes its own tasks
// to the end (their weights are in its cache), then those of the others. Three kinds (pool_board.hpp):
//
//   a block   up to kGemmRows rows of an expert through all of it: gate_up, activation, down; or
//             backward, dA, dZ and A, dX. A row depends on no other, so nothing is waited for between the
//             products.
//   a panel   columns of one weight's gradient, over all rows of the expert; with the first ones its bias's.
//   factors   gradients of what adapters add to one product of an expert, over all its rows.
//
// They are cut where products of the loop and of the tile may be cut (gemm.hpp), so the bits are those of
// experts_forward() and experts_backward(). Masters are read where they lie, as fp32 or bf16; packed faces,
// which other ranks could not reach, are not used.
#pragma once

#include "moeloom/moe/experts/experts.hpp"
#include "moeloom/moe/experts/pool_board.hpp"

namespace moeloom {

/// A thread's own: memory between the products of a block, and what it did.
struct PoolWorker {
  PackedWeights no_faces;  // the masters are read
  RowMemory activated;
  Matrix d_activated;
  std::vector<float> ones;  // what biases are multiplied with
  Matrix low;               // U of an addition
  PoolCounts counts;
};

/// forward() and backward() are collective over the ranks of the memory: all call them, also without a row.
class NodePool {
 public:
  explicit NodePool(std::shared_ptr<NodeMemory> memory);

  /// As experts_forward() and experts_backward(). The shard, saved.rows, d_rows and workspace.output lie in
  /// this rank's part of the memory. Widths, kernels, what is frozen and `gradients` are the same on all
  /// ranks; gradients of weights are fp32. Throws ShapeError.
  void forward(const ExpertPass& pass);
  void backward(const ExpertPass& pass, ConstMatrixView d_rows, Write gradients);

  PoolCounts counts() const;

 private:
  PoolPlaces places_of(const ExpertPass& pass);
  template <typename Run>
  void run_all(const ExpertPass& pass, Run run);

  std::shared_ptr<NodeMemory> memory_;
  PoolBoard board_;
  std::vector<PoolTask> tasks_;
  RowBuffer weights_, d_weights_;  // [R, 1]
  RowBuffer activated_;            // A, from a backward's blocks to its panels
  RowBuffer d_gate_up_;            // dZ in bf16; fp32 stands in Z's place
  RowBuffer d_low_gate_up_;        // dU of adapters, from a backward's blocks to their gradients
  RowBuffer d_low_down_;
  std::vector<PoolWorker> workers_;
};

}  // namespace moeloom
