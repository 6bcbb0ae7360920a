// The experts of one rank: grouped matmul, gated activation, grouped matmul, over the rows that dispatch
// brought.
//
//   forward    Z = X W_gate_up^T [R, 2F], A = weight * act(Z_gate) * Z_up [R, F], Y = A W_down^T [R, D]
//   backward   dA = dY W_down, (dZ, d_weight, A) from Z, dW_down += dY^T A, dX = dZ W_gate_up, dW_gate_up +=
//   dZ^T X
//
// With biases Z += g and Y += weight * d before they go on, d_weight += <dY, d>, dg += sum dZ and dd += sum
// weight * dY.
//
// Kept from forward to backward: X and Z of each row. The routing weight is applied before the down
// projection, which is linear and so gives weight * Y either way: combine is then a plain sum, and the
// weight's gradient comes from A and dA, so that no Y is kept.
#pragma once

#include "base/phase_clock.hpp"
#include "kernels/low_rank.hpp"
#include "moe/dispatch/chunk_plan.hpp"
#include "moe/dispatch/row_buffer.hpp"
#include "moeloom/kernels/registry.hpp"

#include <optional>
#include <vector>

namespace moeloom {

/// Views of the biases of the resident experts, a row an expert, and their gradients. Without columns: there
/// are none; of both products or of neither.
struct ExpertBiases {
  MatrixView gate_up = {};    // g [e, 2F]
  MatrixView down = {};       // d [e, D]
  MatrixView d_gate_up = {};  // without rows, like d_down: frozen, not computed
  MatrixView d_down = {};
  bool any() const { return gate_up.cols > 0; }
};

/// What adapters add to the products of the resident experts, stacked as their weights.
struct ExpertAdapters {
  std::vector<LowRank> gate_up = {};
  std::vector<LowRank> down = {};
  bool any() const { return !gate_up.empty() || !down.empty(); }
  /// Whether either product needs keys of rows now.
  bool drops() const { return drops_inputs(gate_up) || drops_inputs(down); }
};

/// Views of the masters and gradients of the resident experts, stacked.
struct ExpertShard {
  Index experts = 0;     // resident
  MatrixView gate_up;    // [e*2F, D]
  MatrixView down;       // [e*D, F]
  MatrixView d_gate_up;  // without rows, like d_down: frozen, not computed
  MatrixView d_down;
  GatedActivation activation = {};
  ExactSums* sums = nullptr;  // that the gradients of sources are leaves of
  ExpertBiases biases = {};
  ExpertAdapters adapters = {};
  /// Of weights that are stored in halves, whose views above are their shapes alone.
  ConstHalfView gate_up_halves = {}, down_halves = {};
  /// The same of gradients that are kept as bf16.
  Bf16View d_gate_up_halves = {}, d_down_halves = {};
  /// Whether backward makes any gradient of either product.
  bool trains_gate_up() const { return d_gate_up.rows > 0 || biases.d_gate_up.rows > 0; }
  bool trains_down() const { return d_down.rows > 0 || biases.d_down.rows > 0; }
  /// Rows are scaled before the first product, which is linear: the weight is the activation's business
  /// (RowScaleOn) unless a bias stands between the two.
  bool scales_rows() const { return biases.any() && activation.scale_on == RowScaleOn::kInputs; }
  GroupedWeights gate_up_weights() const { return {either(gate_up, gate_up_halves), experts}; }
  GroupedWeights down_weights() const { return {either(down, down_halves), experts}; }

 private:
  static ConstRows either(ConstMatrixView floats, ConstHalfView halves) {
    return halves.data != nullptr ? ConstRows(halves) : ConstRows(floats);
  }
};

/// Both packed faces of a shard, made anew when the weights have changed.
class PackedExperts {
 public:
  /// Packs if `kernel` reads packed weights and `version`, or its element, is not what was packed last; gives
  /// the memory back if it reads none.
  void refresh(const GroupedMatmulKernel& kernel, const ExpertShard& shard, std::uint64_t version);
  const PackedWeights& gate_up() const { return gate_up_; }
  const PackedWeights& down() const { return down_; }
  /// Packings of both weights so far, and the bytes they take.
  Index packings() const { return gate_up_.packings() + down_.packings(); }
  Index bytes() const { return gate_up_.bytes() + down_.bytes(); }

 private:
  void release();

  PackedWeights gate_up_;
  PackedWeights down_;
  std::uint64_t version_ = 0;
};

/// An expert of another rank for one pass: a shard of one, whose arrays lie in `weights` where they were sent
/// and else in the memory of their owner.
struct HeldReplica {
  ExpertShard shard;
  Matrix weights = {};
};

/// What backward needs of forward; memory is reused from step to step.
struct ExpertActivations {
  RowBuffer rows;              // X [R, D]; of ExpertShard::scales_rows() backward leaves weight * X
  RowBuffer gate_up;           // Z [R, 2F]; backward may turn it into dZ
  std::vector<float> weights;  // [R], routing weights of the rows
  // [R] of X, by which adapters of both products drop inputs; backward may change X, and asks for the second
  // product's input gradient before it has made that input again. Empty where nothing is dropped.
  std::vector<std::uint64_t> keys = {};
  // Experts of other ranks that run some of the rows. Kept rather than sent again: backward would have to
  // wait for them before its first product.
  std::vector<HeldReplica> replicas = {};
  Index replica_elements() const {
    Index elements = 0;
    for (const HeldReplica& replica : replicas) elements += replica.weights.capacity();
    return elements;
  }

  /// Of experts of `width`, without keys and replicas.
  static double bytes_of(const TripShape& trip, Index width) {
    return RowBuffer::bytes_of(trip) + rows_bytes(trip.rows.at_once, {2 * width, 1});
  }
};

/// Buffers that no layer keeps; one set serves every layer.
struct ExpertWorkspace {
  RowMemory activated;            // A [R, F], of what the down product multiplies
  RowMemory d_gate_up;            // dZ [R, 2F] in bf16; fp32 stands in Z's place
  Matrix d_activated;             // dA [R, F]
  RowBuffer output;               // Y or dX [R, D]
  std::vector<float> d_weights;   // [R]
  std::vector<Index> chunk_rows;  // [e, ep], of the experts of one chunk alone
  std::vector<float> ones;        // [R], what biases are multiplied with
  // Of adapters: U of a part, and dU of all parts of a weight [R, low_columns].
  Matrix low, d_low_gate_up, d_low_down;

  /// Of experts of `width`, without adapters.
  static double bytes_of(const TripShape& trip, Index width) {
    return rows_bytes(trip.rows.at_once, {width, width, 1}) + RowBuffer::bytes_of(trip);
  }
};

/// A forward or a backward of a shard over the rows that dispatch brought.
struct ExpertPass {
  const KernelTable& kernels;
  const ExpertShard& shard;
  const PackedExperts& packed;
  GroupedRows rows;
  ExpertActivations& saved;
  ExpertWorkspace& workspace;
  PhaseClock& clock;
};

/// Consecutive experts and their rows; of one expert also those of consecutive sources alone. Whatever the
/// chunks, the bits are those of the whole; whatever the sources, if the kernel's are of rows alone.
struct ExpertChunk {
  Stretch experts;
  Stretch rows;
  std::optional<Stretch> sources = {};  // none: all
};

// A pass in chunks: prepared once, when the number of rows is known, and then each chunk once, as soon as its
// rows are there. Who calls them has made workspace.output [R, D]; what each computes is said of the whole
// passes below.
void prepare_forward(const ExpertPass& pass);
void forward_chunk(const ExpertPass& pass, const ExpertChunk& chunk);
/// Of forward_chunk() what backward needs alone: the first product.
void keep_chunk(const ExpertPass& pass, const ExpertChunk& chunk);
void prepare_backward(const ExpertPass& pass);
/// -> the chunk's rows of workspace.output and workspace.d_weights, which may leave.
void backward_chunk(const ExpertPass& pass, const ExpertChunk& chunk, ConstMatrixView d_rows);
/// -> its gradients, of all sources, after backward_chunk(), which left what they are made of.
void weight_gradients(const ExpertPass& pass, const ExpertChunk& chunk, ConstMatrixView d_rows,
                      Write gradients);

/// saved.rows and saved.weights are filled -> workspace.output = Y. The clock is told of each product.
void experts_forward(const ExpertPass& pass);
/// d_rows [R, D] = dY -> workspace.output = dX, workspace.d_weights; the shard's gradients are added to, or
/// written, zeros where an expert has no row: the first micro-batch of a step need not read them.
void experts_backward(const ExpertPass& pass, ConstMatrixView d_rows, Write gradients);

}  // namespace moeloom
