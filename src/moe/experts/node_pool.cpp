#include "moeloom/moe/experts/node_pool.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "experts/expert_biases.hpp"

namespace moeloom {
namespace {

/// One expert of some rank, and the rows of a task, as this process sees them.
class Part {
 public:
  /// `shape`: of this rank's own shard, whose widths are everyone's.
  Part(const PoolBoard& board, int owner, const PoolTask& task, const KernelTable& kernels,
       const ExpertShard& shape)
      : shape_(shape),
        board_(board),
        owner_(owner),
        task_(task),
        places_(board.places(owner)),
        element_(kernels.grouped_matmul.element),
        hidden_(shape.gate_up.cols),
        inter_(shape.down.cols) {}

  MatrixView gate_up() const { return weight(places_.gate_up, 2 * inter_, hidden_); }
  MatrixView down() const { return weight(places_.down, hidden_, inter_); }
  MatrixView d_gate_up() const { return weight(places_.d_gate_up, 2 * inter_, hidden_); }
  MatrixView d_down() const { return weight(places_.d_down, hidden_, inter_); }
  MatrixView d_gate_up_bias() const { return weight(places_.d_gate_up_bias, 2 * inter_, 1); }
  MatrixView d_down_bias() const { return weight(places_.d_down_bias, hidden_, 1); }
  /// A row each.
  ExpertBiases biases() const {
    if (!shape_.biases.any()) return {};
    return {weight(places_.gate_up_bias, 1, 2 * inter_), weight(places_.down_bias, 1, hidden_)};
  }
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

 private:
  MatrixView weight(Index place, Index rows, Index cols) const {
    return {board_.at_place(owner_, place) + task_.expert * rows * cols, rows, cols};
  }
  MatrixView fp32(Index place, Index cols) const {
    return {board_.at_place(owner_, place) + task_.row * cols, task_.rows, cols};
  }
  Rows rows(Index place, Index cols) const {
    return rows_in(board_.at_place(owner_, place) + task_.row * floats_of_row(element_, cols), element_,
                   task_.rows, cols);
  }

  const ExpertShard& shape_;
  const PoolBoard& board_;
  int owner_;
  const PoolTask& task_;
  const PoolPlaces& places_;
  DType element_;
  Index hidden_, inter_;
};

GroupedWeights one(ConstMatrixView weight) {
  return {weight, 1};
}

/// All rows of a task as one group: a product that is no sum over rows does not ask where they came from.
class OneGroup {
 public:
  explicit OneGroup(const PoolTask& task) : count_(task.rows) {}
  operator GroupedRows() const { return {{&count_, 1}, 1}; }

 private:
  Index count_;
};

/// -> output
void forward_block(const KernelTable& kernels, const Part& part, const OneGroup& rows, PoolWorker& worker) {
  const GroupedMatmulKernel& product = kernels.grouped_matmul;
  const MatrixView z = part.z();
  const ExpertBiases biases = part.biases();
  const GroupedRows group = rows;
  const BiasedRows biased{biases, part.shape().scales_rows(), group, part.weights()};
  const Rows activated = worker.activated.reshape_uninitialised(product.element, z.rows, part.down().cols);
  product.forward(one(part.gate_up()), worker.no_faces, part.x(), rows, z);
  biased.finish_gate_up(z);
  kernels.swiglu.forward(activation_of(part.shape()), z, biased.row_scale(), activated);
  product.forward(one(part.down()), worker.no_faces, activated, rows, part.output());
  biased.finish_output(part.output());
}

/// -> output, d_weights, and for the panels d_z and activated
void backward_block(const KernelTable& kernels, const Part& part, const OneGroup& rows, PoolWorker& worker) {
  const GroupedMatmulKernel& product = kernels.grouped_matmul;
  const ExpertBiases biases = part.biases();
  const GroupedRows group = rows;
  const BiasedRows biased{biases, part.shape().scales_rows(), group, part.weights()};
  Matrix& d_activated = worker.d_activated;
  d_activated.reshape_uninitialised(part.z().rows, part.down().cols);
  product.input_grad(one(part.down()), worker.no_faces, part.d_rows(), rows, d_activated);
  kernels.swiglu.backward(activation_of(part.shape()), part.z(), biased.row_scale(), d_activated,
                          {part.d_z(), part.d_weights().first(biased.row_scale().size()), part.activated()});
  product.input_grad(one(part.gate_up()), worker.no_faces, part.d_z(), rows, part.output());
  biased.finish_backward(part.d_rows(), part.x(), part.output(), part.d_weights());
}

/// Columns of what is multiplied, and the bias beside the first of them: the gradients of one product.
struct PanelOperands {
  ConstRows dy, x;
  MatrixView weight;  // without rows: frozen
  std::span<const float> bias_factors;
  MatrixView bias;
};

PanelOperands operands_of(const PoolTask& task, const Part& part, PoolWorker& worker) {
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

void write_panel(const KernelTable& kernels, const PoolTask& task, const Part& part, const GroupedRows& rows,
                 PoolWorker& worker, Write gradients) {
  const auto [dy, x, weight, bias_factors, bias] = operands_of(task, part, worker);
  if (weight.rows > 0)
    kernels.grouped_matmul.weight_grad(dy, x.cols_from(task.column, task.cols), rows,
                                       weight.cols_from(task.column, task.cols), gradients);
  if (bias.rows > 0 && task.column == 0)
    kernels.grouped_matmul.weight_grad(dy, as_column(bias_factors), rows, bias, gradients);
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
  PoolPlaces places{.rows = saved.rows.offset(),
                    .weights = weights_.offset(),
                    .z = saved.gate_up.offset(),
                    .output = pass.workspace.output.offset()};
  const auto place_of = [&](ConstMatrixView weight) {
    return weight.rows == 0 ? 0 : memory_->offset_of(weight.data);
  };
  places.gate_up = place_of(shard.gate_up);
  places.down = place_of(shard.down);
  places.d_gate_up = place_of(shard.d_gate_up);
  places.d_down = place_of(shard.d_down);
  places.gate_up_bias = place_of(shard.biases.gate_up);
  places.down_bias = place_of(shard.biases.down);
  places.d_gate_up_bias = place_of(shard.biases.d_gate_up);
  places.d_down_bias = place_of(shard.biases.d_down);
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
        run(owner, *task, Part(board_, owner, *task, pass.kernels, pass.shard), worker);
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
  require(saved.rows.memory() == memory_.get(), "the node pool needs rows in the node's memory");
  saved.gate_up.reshape_in(memory_, total, 2 * shard.down.cols);
  workspace.output.reshape_in(memory_, total, shard.gate_up.cols);
  list_pool_tasks(rows, {}, tasks_);
  board_.open(tasks_, rows, places_of(pass));
  clock.product("node pool forward", total, [&] {
    run_all(pass, [&](int, const PoolTask& task, const Part& part, PoolWorker& worker) {
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
  workspace.output.reshape_in(memory_, total, hidden);
  d_weights_.reshape_in(memory_, total, 1);
  activated_.reshape_in(memory_, total, floats_of_row(element, inter));
  if (element != DType::kF32) d_gate_up_.reshape_in(memory_, total, floats_of_row(element, 2 * inter));
  list_pool_tasks(rows,
                  {.gate_up_panels = shard.trains_gate_up(),
                   .down_panels = shard.trains_down(),
                   .hidden = shard.d_gate_up.rows > 0 ? hidden : 1,
                   .inter = shard.d_down.rows > 0 ? inter : 1,
                   .panels_of_empty_experts = gradients == Write::kReplace},
                  tasks_);
  PoolPlaces places = places_of(pass);
  places.activated = activated_.offset();
  places.d_rows = total == 0 ? 0 : memory_->offset_of(d_rows.data);
  places.d_z = element == DType::kF32 ? places.z : d_gate_up_.offset();
  places.d_weights = d_weights_.offset();
  board_.open(tasks_, rows, places);
  clock.product("node pool backward", total, [&] {
    run_all(pass, [&](int owner, const PoolTask& task, const Part& part, PoolWorker& worker) {
      if (task.kind == PoolTask::Kind::kBlock) {
        const DoneAtExit done(board_, owner, task.expert);
        return backward_block(pass.kernels, part, OneGroup(task), worker);
      }
      board_.wait_for_blocks(owner, task);
      write_panel(pass.kernels, task, part, board_.rows_of(owner, task.expert), worker, gradients);
    });
  });
  const std::span<const float> numbers = d_weights_.view().flat();
  workspace.d_weights.assign(numbers.begin(), numbers.end());
}

}  // namespace moeloom
