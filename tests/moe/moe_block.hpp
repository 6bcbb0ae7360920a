// A whole sparse block for tests: its weights, and one rank's part of it with the gradients that come out.
#pragma once

#include "moe/moe_layer.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "support/random_matrix.hpp"

namespace moeloom::testing {

/// The same for weights and for their gradients; each rank takes its experts.
struct BlockWeights {
  Matrix router = {};               // [E, D]
  Matrix gate_up = {};              // [E*2F, D]
  Matrix down = {};                 // [E*D, F]
  Matrix shared_gate_up = {};       // [2S, D]; without rows, like down: no shared expert
  Matrix shared_down = {};          // [D, S]
  Matrix shared_gate = {};          // [1, D]; without rows: not gated
  Matrix router_bias = {};          // [1, E]; without rows, like those of experts: there is none
  Matrix gate_up_bias = {};         // [E, 2F]
  Matrix down_bias = {};            // [E, D]
  Matrix shared_gate_up_bias = {};  // [1, 2S]
  Matrix shared_down_bias = {};     // [1, D]
  GatedActivation activation = {};
  float output_scale = 1;

  Index experts() const { return router.rows(); }
  Index hidden() const { return router.cols(); }
  Index inter() const { return down.cols(); }
};

struct RandomBlock {
  Index hidden, inter, shared = 0;
  bool shared_gated = false;
  GatedActivation activation = {};
  bool biases = false;  // wherever there can be one

  BlockWeights weights(Index experts, std::uint64_t seed) const {
    BlockWeights w{.router = random_matrix(experts, hidden, seed),
                   .gate_up = random_matrix(experts * 2 * inter, hidden, seed + 1, 0.4),
                   .down = random_matrix(experts * hidden, inter, seed + 2, 0.4),
                   .activation = activation};
    if (shared > 0) w.shared_gate_up = random_matrix(2 * shared, hidden, seed + 3, 0.4);
    if (shared > 0) w.shared_down = random_matrix(hidden, shared, seed + 4, 0.4);
    if (shared_gated) w.shared_gate = random_matrix(1, hidden, seed + 5);
    if (!biases) return w;
    w.router_bias = random_matrix(1, experts, seed + 6);
    w.gate_up_bias = random_matrix(experts, 2 * inter, seed + 7);
    w.down_bias = random_matrix(experts, hidden, seed + 8);
    if (shared > 0) w.shared_gate_up_bias = random_matrix(1, 2 * shared, seed + 9);
    if (shared > 0) w.shared_down_bias = random_matrix(1, hidden, seed + 10);
    return w;
  }
};

inline KernelTable block_kernels(bool grouped) {
  KernelTable kernels;
  if (grouped) {
    kernels.grouped_matmul = packed_grouped_matmul();
    kernels.swiglu = fused_swiglu();
  }
  return kernels;
}

/// The largest ep that divides both the ranks and the experts; every such row of ranks runs the same block.
inline Communicator largest_ep(const Communicator& world, Index experts) {
  const auto ep = static_cast<int>(std::gcd(static_cast<Index>(world.size()), experts));
  return world.split(world.rank() / ep, world.rank());
}

/// Tokens are dealt in stretches; the last ranks may get none.
inline ConstMatrixView stretch(ConstMatrixView tokens, int rank, int ranks) {
  const Index each = ceil_div(tokens.rows, ranks);
  const Index begin = std::min<Index>(tokens.rows, each * rank);
  return tokens.rows_from(begin, std::min(each, tokens.rows - begin));
}
inline ConstMatrixView stretch(ConstMatrixView tokens, const Communicator& ep) {
  return stretch(tokens, ep.rank(), ep.size());
}

inline Matrix sum_over(const Communicator& comm, ConstMatrixView mine) {
  std::vector<double> sum(mine.flat().begin(), mine.flat().end());
  comm.all_sum(sum);
  Matrix total = Matrix::uninitialised(mine.rows, mine.cols);
  std::copy(sum.begin(), sum.end(), total.view().data);
  return total;
}

/// One rank's part of a block spread over `ep`. Weights named in `frozen` ("router", "gate_up", "down",
/// "shared_gate_up", "shared_down", "shared_gate", and biases, "router_bias", ...) have no gradient.
class Block {
 public:
  Block(const Communicator& ep, const RouterSettings& router, const BlockWeights& whole, KernelTable kernels,
        const std::set<std::string>& frozen = {}, const DispatcherSettings& dispatcher = {})
      : ep_(ep),
        kernels_(kernels),
        held_(experts_of(whole.experts(), ep.size(), ep.rank())),
        weights_{.router = Matrix::copy_of(whole.router),
                 .gate_up = part(whole.gate_up, 2 * whole.inter()),
                 .down = part(whole.down, whole.hidden()),
                 .shared_gate_up = Matrix::copy_of(whole.shared_gate_up),
                 .shared_down = Matrix::copy_of(whole.shared_down),
                 .shared_gate = Matrix::copy_of(whole.shared_gate),
                 .router_bias = Matrix::copy_of(whole.router_bias),
                 .gate_up_bias = part(whole.gate_up_bias, 1),
                 .down_bias = part(whole.down_bias, 1),
                 .shared_gate_up_bias = Matrix::copy_of(whole.shared_gate_up_bias),
                 .shared_down_bias = Matrix::copy_of(whole.shared_down_bias),
                 .activation = whole.activation,
                 .output_scale = whole.output_scale},
        gradients_{.router = zeros(weights_.router, frozen.contains("router")),
                   .gate_up = zeros(weights_.gate_up, frozen.contains("gate_up")),
                   .down = zeros(weights_.down, frozen.contains("down")),
                   .shared_gate_up = zeros(weights_.shared_gate_up, frozen.contains("shared_gate_up")),
                   .shared_down = zeros(weights_.shared_down, frozen.contains("shared_down")),
                   .shared_gate = zeros(weights_.shared_gate, frozen.contains("shared_gate")),
                   .router_bias = zeros(weights_.router_bias, frozen.contains("router_bias")),
                   .gate_up_bias = zeros(weights_.gate_up_bias, frozen.contains("gate_up_bias")),
                   .down_bias = zeros(weights_.down_bias, frozen.contains("down_bias")),
                   .shared_gate_up_bias =
                       zeros(weights_.shared_gate_up_bias, frozen.contains("shared_gate_up_bias")),
                   .shared_down_bias = zeros(weights_.shared_down_bias, frozen.contains("shared_down_bias"))},
        gate_up_(in_memory(weights_.gate_up, dispatcher.weights_memory())),
        down_(in_memory(weights_.down, dispatcher.weights_memory())),
        layer_(views(), router),
        dispatcher_(ep, whole.experts(), dispatcher),
        experts_(dispatcher) {}

  /// Forward and backward of this rank's tokens.
  void run(ConstMatrixView hidden, ConstMatrixView d_output) {
    RouterStatistics statistics(1, weights_.experts());
    output = Matrix(hidden.rows, hidden.cols);
    d_hidden = Matrix(hidden.rows, hidden.cols);
    const MoeContext context{.kernels = kernels_,
                             .dispatcher = dispatcher_,
                             .experts = experts_,
                             .workspace = workspace_,
                             .clock = clock_,
                             .tokens = {.world = &ep_},
                             .weight_version = ++version_,
                             .recompute = recompute,
                             .row_budget = row_budget};
    layer_.forward(context, hidden, output, statistics);
    layer_.backward(context, hidden, {}, d_output, d_hidden);
  }

  /// The experts' are those of the held ones.
  const BlockWeights& gradients() const { return gradients_; }
  ExpertRange held() const { return held_; }
  const Routing& routing() const { return layer_.routing(); }
  const RebalanceCounts& rebalance_counts() const { return layer_.experts().rebalance_counts(); }
  const DispatchPlan& plan() const { return layer_.experts().activations().plan; }
  /// What is timed from now on goes to `spans`.
  void record_into(std::vector<Span>& spans) { clock_.record_into(&spans); }

  /// call(phase) in each phase as it begins.
  void on_enter(std::function<void(Phase)> call) {
    clock_.show_on(&board_);
    clock_.on_enter([this, call = std::move(call)] { call(board_.read().phase); });
  }

  /// Rows of the last dispatch.
  Index rows_held() const { return layer_.experts().activations().experts.rows.rows(); }
  /// Of any slice so far.
  Index most_rows() const { return layer_.experts().most_rows(); }
  Index slices() const { return layer_.experts().activations().slices; }

  Matrix output, d_hidden;
  Index row_budget = 0;
  bool recompute = false;

 private:
  Matrix part(const Matrix& stacked, Index rows_each) const {
    if (stacked.rows() == 0) return Matrix();
    return Matrix::copy_of(stacked.view().rows_from(held_.begin * rows_each, held_.count * rows_each));
  }
  static RowBuffer in_memory(const Matrix& weight, std::shared_ptr<NodeMemory> memory) {
    RowBuffer rows(std::move(memory));
    rows.reshape_uninitialised(weight.rows(), weight.cols());
    copy(weight, rows);
    return rows;
  }
  static Matrix zeros(const Matrix& weight, bool frozen) {
    return frozen ? Matrix() : Matrix(weight.rows(), weight.cols());
  }

  MoeWeights views() {
    MoeWeights weights{.router = weights_.router,
                       .d_router = gradients_.router,
                       .experts = {.experts = held_.count,
                                   .gate_up = gate_up_,
                                   .down = down_,
                                   .d_gate_up = gradients_.gate_up,
                                   .d_down = gradients_.down,
                                   .activation = weights_.activation,
                                   .biases = {.gate_up = weights_.gate_up_bias,
                                              .down = weights_.down_bias,
                                              .d_gate_up = gradients_.gate_up_bias,
                                              .d_down = gradients_.down_bias}},
                       .router_bias = weights_.router_bias.view().flat(),
                       .d_router_bias = gradients_.router_bias.view().flat(),
                       .output_scale = weights_.output_scale};
    if (weights_.shared_down.rows() > 0)
      weights.shared = {.gate_up = weights_.shared_gate_up,
                        .down = weights_.shared_down,
                        .gate = weights_.shared_gate,
                        .d_gate_up = gradients_.shared_gate_up,
                        .d_down = gradients_.shared_down,
                        .d_gate = gradients_.shared_gate,
                        .activation = weights_.activation,
                        .biases = {.gate_up = weights_.shared_gate_up_bias,
                                   .down = weights_.shared_down_bias,
                                   .d_gate_up = gradients_.shared_gate_up_bias,
                                   .d_down = gradients_.shared_down_bias}};
    return weights;
  }

  const Communicator& ep_;
  KernelTable kernels_;
  ExpertRange held_;
  BlockWeights weights_, gradients_;
  RowBuffer gate_up_, down_;  // where the dispatcher wants them
  MoeLayer layer_;
  Dispatcher dispatcher_;
  ExpertRunner experts_;
  MoeWorkspace workspace_;
  PositionBoard board_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
};

}  // namespace moeloom::testing
