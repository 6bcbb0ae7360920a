#include "moeloom/moe/experts/node_pool.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "experts/expert_biases.hpp"
#include "experts/pool_part.hpp"

namespace moeloom {
namespace {

constexpr auto kNoKeys = "the node pool has no keys of rows, by which adapters of experts drop inputs";

/// All rows of a task as one group: a product that is no sum over rows does not ask where they came from.
class OneGroup {
 public:
  explicit OneGroup(const PoolTask& task) : count_(task.rows) {}
  operator GroupedRows() const { return {{&count_, 1}, 1}; }

 private:
  Index count_;
};

/// -> output
void forward_block(const KernelTable& kernels, const PoolPart& part, const OneGroup& rows,
                   PoolWorker& worker) {
  const GroupedMatmulKernel& product = kernels.grouped_matmul;
  const MatrixView z = part.z();
  const ExpertBiases biases = part.biases();
  const GroupedRows group = rows;
  const BiasedRows biased{biases, part.shape().scales_rows(), group, part.weights()};
  const Rows activated = worker.activated.reshape_uninitialised(product.element, z.rows, part.inter());
  product.forward(part.gate_up(), worker.no_faces, part.x(), rows, z);
  add_low_rank(product, part.gate_up_adapter(), part.x(), rows, z, worker.low);
  biased.finish_gate_up(z);
  kernels.swiglu.forward(activation_of(part.shape()), z, biased.row_scale(), activated);
  product.forward(part.down(), worker.no_faces, activated, rows, part.output());
  add_low_rank(product, part.down_adapter(), activated, rows, part.output(), worker.low);
  biased.finish_output(part.output());
}

/// -> output, d_weights, and for the gradients d_z, activated and dU
void backward_block(const KernelTable& kernels, const PoolPart& part, const OneGroup& rows,
                    PoolWorker& worker) {
  const GroupedMatmulKernel& product = kernels.grouped_matmul;
  const ExpertBiases biases = part.biases();
  const GroupedRows group = rows;
  const BiasedRows biased{biases, part.shape().scales_rows(), group, part.weights()};
  Matrix& d_activated = worker.d_activated;
  d_activated.reshape_uninitialised(part.z().rows, part.inter());
  product.input_grad(part.down(), worker.no_faces, part.d_rows(), rows, d_activated);
  add_low_rank_input_grad(product, part.down_adapter(), part.d_rows(), rows, d_activated, part.d_low_down());
  kernels.swiglu.backward(activation_of(part.shape()), part.z(), biased.row_scale(), d_activated,
                          {part.d_z(), part.d_weights().first(biased.row_scale().size()), part.activated()});
  product.input_grad(part.gate_up(), worker.no_faces, part.d_z(), rows, part.output());
  add_low_rank_input_grad(product, part.gate_up_adapter(), part.d_z(), rows, part.output(),
                          part.d_low_gate_up());
  biased.finish_backward(part.d_rows(), part.x(), part.output(), part.d_weights());
}

/// Columns of what is multiplied, and the bias beside the first of them: the gradients of one product.
struct PanelOperands {
  ConstRows dy, x;
  MatrixView weight;  // without rows: frozen
  std::span<const float> bias_factors;
  MatrixView bias;
};

PanelOperands operands_of(const PoolTask& task, const PoolPart& part, PoolWorker& worker) {
  const ExpertShard& shape = part.shape();
  if (shape.biases.any()) worker.ones.resize(std::max(worker.ones.size(), at(task.rows)), 1.0f);
  const std::span<const float> ones(worker.ones.data(), shape.biases.any() ? at(task.rows) : 0);
  const auto trained = [](ConstMatrixView of_shape, MatrixView gradient) {
    return of_shape.rows > 0 ? gradient : MatrixView();
  };
  if (task.kind == PoolTask::Kind::kDownPanel)
    return {part.d_rows(), part.activated(), trained(shape.d_down, part.d_down()),
            shape.scales_rows() ? ones : std::span<const float>(part.weights()),
            trained(shape.biases.d_down, part.d_down_bias())};
  return {part.d_z(), part.x(), trained(shape.d_gate_up, part.d_gate_up()), ones,
          trained(shape.biases.d_gate_up, part.d_gate_up_bias())};
}

void write_panel(const KernelTable& kernels, const PoolTask& task, const PoolPart& part,
                 const GroupedRows& rows, PoolWorker& worker, Write gradients) {
  const auto [dy, x, weight, bias_factors, bias] = operands_of(task, part, worker);
  if (weight.rows > 0)
    kernels.grouped_matmul.weight_grad(dy, x.cols_from(task.column, task.cols), rows,
                                       weight.cols_from(task.column, task.cols), gradients);
  if (bias.rows > 0 && task.column == 0)
    kernels.grouped_matmul.weight_grad(dy, as_column(bias_factors), rows, bias, gradients);
}

void write_factors(const KernelTable& kernels, const PoolTask& task, const PoolPart& part,
                   const GroupedRows& rows, PoolWorker& worker, Write gradients) {
  const auto write = [&](std::span<const LowRank> parts, ConstRows dy, ConstMatrixView d_low, ConstRows x) {
    low_rank_weight_grads(kernels.grouped_matmul, parts, 1, {0, 1}, dy, d_low, x, rows, nullptr, gradients,
                          worker.low);
  };
  if (task.kind == PoolTask::Kind::kDownFactors)
    write(part.down_adapter(), part.d_rows(), part.d_low_down(), part.activated());
  else
    write(part.gate_up_adapter(), part.d_z(), part.d_low_gate_up(), part.x());
}

/// After the expert's blocks.
void write_gradient(const KernelTable& kernels, const PoolTask& task, const PoolPart& part,
                    const GroupedRows& rows, PoolWorker& worker, Write gradients) {
  const bool of_factors =
      task.kind == PoolTask::Kind::kGateUpFactors || task.kind == PoolTask::Kind::kDownFactors;
  (of_factors ? write_factors : write_panel)(kernels, task, part, rows, worker, gradients);
}

bool trains(std::span<const LowRank> parts) {
  return std::ranges::any_of(parts, [](const LowRank& part) { return part.d_a.rows > 0; });
}

/// Also by an exception: it is rethrown when this rank's threads have ended, of which one may wait for the
/// block.
class DoneAtExit {
 public:
  DoneAtExit(const PoolBoard& board, int owner, Index expert)
      : board_(board), owner_(owner), expert_(expert) {}
  ~DoneAtExit() { board_.block_is_done(owner_, expert_); }
  DoneAtExit(const DoneAtExit&) = delete;
  DoneAtExit& operator=(const DoneAtExit&) = delete;

 private:
  const PoolBoard& board_;
  int owner_;
  Index expert_;
};

}  // namespace

NodePool::NodePool(std::shared_ptr<NodeMemory> memory) : memory_(std::move(memory)), board_(memory_) {}

PoolCounts NodePool::counts() const {
  PoolCounts sum;
  for (const PoolWorker& worker : workers_) {
    sum.tasks += worker.counts.tasks;
    sum.for_others += worker.counts.for_others;
  }
  return sum;
}

/// Of what both directions use.
PoolPlaces NodePool::places_of(const ExpertPass& pass) {
  const ExpertShard& shard = pass.shard;
  const ExpertActivations& saved = pass.saved;
  weights_.reshape_in(memory_, saved.rows.rows(), 1);
  std::ranges::copy(saved.weights, weights_.view().data);
  PoolPlaces places = places_of_weights(*memory_, shard);
  places.rows = saved.rows.offset();
  places.weights = weights_.offset();
  places.z = saved.gate_up.offset();
  places.output = pass.workspace.output.offset();
  return places;
}

/// run(task, part, worker) for every task of the node.
template <typename Run>
void NodePool::run_all(const ExpertPass& pass, Run run) {
  workers_.resize(std::max(workers_.size(), at(threads())));
  parallel_for(threads(), [&](Index) {
    PoolWorker& worker = workers_[at(thread_index())];
    for (int turn = 0; turn < board_.owners(); ++turn) {
      const int owner = (memory_->rank() + turn) % board_.owners();
      while (const std::optional<PoolTask> task = board_.take(owner)) {
        run(owner, *task, PoolPart(board_, owner, *task, pass.kernels, pass.shard), worker);
        ++worker.counts.tasks;
        if (turn > 0) ++worker.counts.for_others;
      }
    }
  });
  board_.close();
}

void NodePool::forward(const ExpertPass& pass) {
  const auto& [kernels, shard, packed, rows, saved, workspace, clock] = pass;
  const Index total = saved.rows.rows();
  require(total == rows.total(), "the experts need as many rows as were planned");
  check_biases(shard);
  require(!shard.adapters.drops(), kNoKeys);
  require(saved.rows.memory() == memory_.get(), "the node pool needs rows in the node's memory");
  saved.gate_up.reshape_in(memory_, total, 2 * shard.down.cols);
  workspace.output.reshape_in(memory_, total, shard.gate_up.cols);
  list_pool_tasks(rows, {}, tasks_);
  board_.open(tasks_, rows, places_of(pass));
  clock.product("node pool forward", total, [&] {
    run_all(pass, [&](int, const PoolTask& task, const PoolPart& part, PoolWorker& worker) {
      forward_block(pass.kernels, part, OneGroup(task), worker);
    });
  });
}

void NodePool::backward(const ExpertPass& pass, ConstMatrixView d_rows, Write gradients) {
  const auto& [kernels, shard, packed, rows, saved, workspace, clock] = pass;
  const Index total = saved.rows.rows(), hidden = shard.gate_up.cols, inter = shard.down.cols;
  const DType element = kernels.grouped_matmul.element;
  require(total == rows.total() && d_rows.rows == total && saved.gate_up.memory() == memory_.get(),
          "the node pool's backward needs the rows of its own forward");
  require(!shard.adapters.drops(), kNoKeys);
  workspace.output.reshape_in(memory_, total, hidden);
  d_weights_.reshape_in(memory_, total, 1);
  activated_.reshape_in(memory_, total, floats_of_row(element, inter));
  if (element != DType::kF32) d_gate_up_.reshape_in(memory_, total, floats_of_row(element, 2 * inter));
  const ExpertAdapters& adapters = shard.adapters;
  d_low_gate_up_.reshape_in(memory_, total, low_columns(adapters.gate_up, shard.experts));
  d_low_down_.reshape_in(memory_, total, low_columns(adapters.down, shard.experts));
  list_pool_tasks(rows,
                  {.gate_up_factors = trains(adapters.gate_up),
                   .down_factors = trains(adapters.down),
                   .gate_up_panels = shard.trains_gate_up(),
                   .down_panels = shard.trains_down(),
                   .hidden = shard.d_gate_up.rows > 0 ? hidden : 1,
                   .inter = shard.d_down.rows > 0 ? inter : 1,
                   .gradients_of_empty_experts = gradients == Write::kReplace},
                  tasks_);
  PoolPlaces places = places_of(pass);
  places.activated = activated_.offset();
  places.d_rows = total == 0 ? 0 : memory_->offset_of(d_rows.data);
  places.d_z = element == DType::kF32 ? places.z : d_gate_up_.offset();
  places.d_weights = d_weights_.offset();
  places.d_low_gate_up = d_low_gate_up_.offset();
  places.d_low_down = d_low_down_.offset();
  board_.open(tasks_, rows, places);
  clock.product("node pool backward", total, [&] {
    run_all(pass, [&](int owner, const PoolTask& task, const PoolPart& part, PoolWorker& worker) {
      if (task.kind == PoolTask::Kind::kBlock) {
        const DoneAtExit done(board_, owner, task.expert);
        return backward_block(pass.kernels, part, OneGroup(task), worker);
      }
      board_.wait_for_blocks(owner, task);
      write_gradient(pass.kernels, task, part, board_.rows_of(owner, task.expert), worker, gradients);
    });
  });
  const std::span<const float> numbers = d_weights_.view().flat();
  workspace.d_weights.assign(numbers.begin(), numbers.end());
}

}  // namespace moeloom
