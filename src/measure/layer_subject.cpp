#include "measure/layer_subject.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/statistics.hpp"
#include "train/trainer.hpp"

#include <numeric>

#include "error.hpp"
#include "routed_tokens.hpp"

namespace moeloom {
namespace {

/// Met by every workload, the burst of kBurst among them.
constexpr Index kCheckedStep = kBurstPeriod - 1;
constexpr double kWeightScale = 0.03;

/// Makes `to` rows [first, first + to.rows) of a matrix of normal numbers that is the same however it is cut.
void fill_normal(MatrixView to, Index first, double scale, const char* name, std::uint64_t seed) {
  const CounterRandom random(seed, stream_of(name));
  parallel_for(to.rows, [&](Index i) {
    for (Index j = 0; j < to.cols; ++j)
      to(i, j) =
          static_cast<float>(scale * random.normal(static_cast<std::uint64_t>((first + i) * to.cols + j)));
  });
}

Matrix normal_tokens(TokenRange range, Index cols, const char* name, std::uint64_t seed) {
  Matrix tokens = Matrix::uninitialised(range.count, cols);
  fill_normal(tokens, range.begin, 1, name, seed);
  return tokens;
}

RowBuffer zeros(const std::shared_ptr<NodeMemory>& memory, Index rows, Index cols) {
  RowBuffer buffer(memory);
  buffer.reshape_uninitialised(rows, cols);
  fill(buffer, 0);
  return buffer;
}

/// Of the held experts, `rows` each.
RowBuffer weights(const std::shared_ptr<NodeMemory>& memory, ExpertRange held, Index rows, Index cols,
                  const char* name, std::uint64_t seed) {
  RowBuffer buffer = zeros(memory, held.count * rows, cols);
  fill_normal(buffer, held.begin * rows, kWeightScale, name, seed);
  return buffer;
}

Matrix router_of_logits(const LayerSizes& sizes) {
  Matrix router(sizes.experts, sizes.hidden);
  read_logits(router);
  return router;
}

double error_of_rows(ConstMatrixView got, ConstMatrixView reference) {
  return worst_row_error(got, reference, typical_row_norm(reference));
}

/// Against the rows that the held experts have in a matrix of all experts' rows.
double expert_error(ConstMatrixView mine, ConstMatrixView of_all, const LayerSubject& subject,
                    Index experts) {
  const Index rows_each = of_all.rows / experts;
  const Matrix sum = sum_over(mine, subject.mesh().dp());
  const ExpertRange held = subject.held();
  return worst_row_error(sum, of_all.rows_from(held.begin * rows_each, held.count * rows_each),
                         typical_row_norm(of_all));
}

}  // namespace

LayerSizes layer_sizes(const ModelConfig& c) {
  return {c.hidden_size, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok, c.norm_topk_prob};
}

LayerInputs::LayerInputs(const LayerSizes& sizes, const Workload& workload, Index tokens,
                         const Communicator& world, std::uint64_t seed)
    : workload_(workload),
      shape_{tokens, sizes.experts, sizes.top_k},
      seed_(seed),
      range_(tokens_of_rank(workload, tokens, world.size(), world.rank())),
      hidden_(normal_tokens(range_, sizes.hidden, "tokens", seed)),
      d_output_(normal_tokens(range_, sizes.hidden, "upstream", seed)) {}

void LayerInputs::prepare(Index step) {
  write_logits(choose_experts(workload_, shape_, seed_, step, range_), shape_.experts, hidden_);
}

LayerSubject::LayerSubject(const LayerSizes& s, const Mesh& mesh, const KernelTable& kernels,
                           const DispatcherSettings& dispatcher, std::uint64_t seed)
    : mesh_(&mesh),
      kernels_(kernels),
      weight_memory_(dispatcher.weights_memory()),
      held_(mesh.experts(s.experts)),
      router_(router_of_logits(s)),
      d_router_(s.experts, s.hidden),
      gate_up_(weights(weight_memory_, held_, 2 * s.inter, s.hidden, "gate_up", seed)),
      d_gate_up_(zeros(weight_memory_, gate_up_.rows(), gate_up_.cols())),
      down_(weights(weight_memory_, held_, s.hidden, s.inter, "down", seed)),
      d_down_(zeros(weight_memory_, down_.rows(), down_.cols())),
      layer_({router_, d_router_, {held_.count, gate_up_, down_, d_gate_up_, d_down_}},
             softmax_router(s.experts, s.top_k, s.norm_topk_prob)),
      dispatcher_(mesh.ep(), s.experts, dispatcher),
      experts_(dispatcher) {}

StepSample LayerSubject::step(const LayerInputs& inputs) {
  const ConstMatrixView hidden = inputs.hidden();
  output_.reshape_uninitialised(hidden.rows, hidden.cols);
  d_hidden_.reshape_uninitialised(hidden.rows, hidden.cols);
  fill(d_router_, 0);
  fill(output_, 0);
  RouterStatistics statistics(1, router_.rows());
  const std::int64_t sent_before = message_bytes(*mesh_), rows_before = dispatcher_.traffic().row_bytes;
  mesh_->world().barrier();
  clock_.start();
  const MoeContext context{.kernels = kernels_,
                           .dispatcher = dispatcher_,
                           .experts = experts_,
                           .workspace = workspace_,
                           .clock = clock_,
                           .weight_version = ++version_,
                           .expert_gradients = Write::kReplace};
  layer_.forward(context, hidden, output_, statistics);
  forward_seconds_ = clock_.take();
  layer_.backward(context, hidden, {}, inputs.d_output(), d_hidden_);
  backward_seconds_ = clock_.take();
  StepSample sample;
  for (std::size_t i = 0; i < kPhases; ++i)
    sample.phase_seconds[i] = forward_seconds_[i] + backward_seconds_[i];
  sample.seconds = std::reduce(sample.phase_seconds.begin(), sample.phase_seconds.end());
  sample.message_bytes = message_bytes(*mesh_) - sent_before;
  const DispatchPlan& plan = layer_.experts().activations().plan;
  sample.rows = plan.rows();
  sample.row_bytes = dispatcher_.traffic().row_bytes - rows_before;
  std::vector<Index> rows_per_expert = plan.tokens_per_expert;
  mesh_->world().all_sum(std::span(rows_per_expert));
  sample.expert_load = max_over_mean(rows_per_expert);
  sample.expert_gini = gini(rows_per_expert);
  return sample;
}

LayerCheck::LayerCheck(const LayerSizes& sizes, const Mesh& without_ep, LayerInputs& inputs,
                       std::uint64_t seed)
    : experts_(sizes.experts) {
  LayerSubject subject(sizes, without_ep, {}, {}, seed);
  inputs.prepare(kCheckedStep);
  subject.step(inputs);
  const Communicator& world = without_ep.world();
  output_ = Matrix::copy_of(subject.output());
  d_hidden_ = Matrix::copy_of(subject.d_hidden());
  d_router_ = sum_over(subject.d_router(), world);
  d_gate_up_ = sum_over(subject.d_gate_up(), world);
  d_down_ = sum_over(subject.d_down(), world);
}

double LayerCheck::error_of(LayerSubject& subject, LayerInputs& inputs) const {
  inputs.prepare(kCheckedStep);
  subject.step(inputs);
  const Communicator& world = subject.mesh().world();
  double error = error_of_rows(subject.output(), output_);
  error = worse(error, error_of_rows(subject.d_hidden(), d_hidden_));
  error = worse(error, error_of_rows(sum_over(subject.d_router(), world), d_router_));
  error = worse(error, expert_error(subject.d_gate_up(), d_gate_up_, subject, experts_));
  return world.all_max(worse(error, expert_error(subject.d_down(), d_down_, subject, experts_)));
}

double LayerCheck::tolerance(DType dtype) {
  // fp32: three products deep, sums of some thousand terms in another order: 1e-6 measured. bf16 keeps 8 bits
  // of each factor: 1.3e-2 measured.
  return dtype == DType::kBF16 ? 4e-2 : 1e-5;
}

}  // namespace moeloom
