#include "moeloom/measure/layer_subject.hpp"

#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/train/trainer.hpp"

#include <chrono>

#include "moeloom/measure/error.hpp"
#include "run/run_report.hpp"

namespace moeloom {
namespace {

/// Met by every workload, the burst of kBurst among them.
constexpr Index kCheckedStep = kBurstPeriod - 1;
constexpr double kWeightScale = 0.03;

/// Rows [first, first + rows) of a matrix of normal numbers that is the same however it is cut.
Matrix normal_rows(Index first, Index rows, Index cols, double scale, const char* name, std::uint64_t seed) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(seed, stream_of(name));
  parallel_for(rows, [&](Index i) {
    for (Index j = 0; j < cols; ++j)
      m.row(i)[j] =
          static_cast<float>(scale * random.normal(static_cast<std::uint64_t>((first + i) * cols + j)));
  });
  return m;
}

/// Logits are the first values of a token.
Matrix identity_router(Index experts, Index hidden) {
  Matrix router(experts, hidden);
  for (Index e = 0; e < experts; ++e) router.row(e)[e] = 1;
  return router;
}

/// Logits that choose: falling from 3 in slot order, the others between -2 and -1.
void write_logits(std::span<const std::int32_t> chosen, Index experts, const CounterRandom& random,
                  Index token, float* row) {
  for (Index e = 0; e < experts; ++e)
    row[e] = static_cast<float>(-1 - random.uniform(static_cast<std::uint64_t>(token * experts + e)));
  for (std::size_t k = 0; k < chosen.size(); ++k)
    row[chosen[k]] = 3 - 3 * static_cast<float>(k) / static_cast<float>(chosen.size());
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

LayerInputs::LayerInputs(const ModelConfig& config, const EpPoint& point, std::uint64_t seed, Index rank)
    : workload_(point.workload),
      shape_{point.tokens, config.num_experts, config.num_experts_per_tok},
      seed_(seed),
      range_(tokens_of_rank(point.workload, point.tokens, point.ranks, rank)),
      hidden_(normal_rows(range_.begin, range_.count, config.hidden_size, 1, "tokens", seed)),
      d_output_(normal_rows(range_.begin, range_.count, config.hidden_size, 1, "upstream", seed)) {}

void LayerInputs::prepare(Index step) {
  const auto topk_idx = choose_experts(workload_, shape_, seed_, step, range_);
  const CounterRandom random(seed_ + static_cast<std::uint64_t>(step), stream_of("logits"));
  for (Index t = 0; t < range_.count; ++t)
    write_logits(std::span(topk_idx).subspan(at(t * shape_.top_k), at(shape_.top_k)), shape_.experts, random,
                 range_.begin + t, hidden_.row(t));
}

LayerSubject::LayerSubject(const ModelConfig& c, const PlannedPoint& planned, std::uint64_t seed)
    : mesh_(planned.mesh),
      kernels_(planned.kernels.table),
      held_(experts_of(c.num_experts, mesh_->shape().ep, mesh_->ep().rank())),
      router_(identity_router(c.num_experts, c.hidden_size)),
      d_router_(c.num_experts, c.hidden_size),
      gate_up_(normal_rows(held_.begin * 2 * c.moe_intermediate_size,
                           held_.count * 2 * c.moe_intermediate_size, c.hidden_size, kWeightScale, "gate_up",
                           seed)),
      d_gate_up_(gate_up_.rows(), gate_up_.cols()),
      down_(normal_rows(held_.begin * c.hidden_size, held_.count * c.hidden_size, c.moe_intermediate_size,
                        kWeightScale, "down", seed)),
      d_down_(down_.rows(), down_.cols()),
      layer_({router_, d_router_, {held_.count, gate_up_, down_, d_gate_up_, d_down_}},
             {c.num_experts, c.num_experts_per_tok, c.norm_topk_prob}),
      dispatcher_(mesh_->ep(), c.num_experts, planned.dispatcher.settings) {}

StepSample LayerSubject::step(const LayerInputs& inputs) {
  const ConstMatrixView hidden = inputs.hidden();
  output_.reshape_uninitialised(hidden.rows, hidden.cols);
  d_hidden_.reshape_uninitialised(hidden.rows, hidden.cols);
  fill(d_router_, 0);
  fill(output_, 0);
  RouterStatistics statistics(router_.rows());
  const std::int64_t sent_before = message_bytes(*mesh_);
  mesh_->world().barrier();
  clock_.start();
  const auto start = std::chrono::steady_clock::now();
  layer_.forward(kernels_, dispatcher_, hidden, {}, ++version_, output_, statistics, workspace_, clock_);
  layer_.backward(kernels_, dispatcher_, hidden, {}, {}, inputs.d_output(), d_hidden_, workspace_, clock_,
                  Write::kReplace);
  StepSample sample;
  sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  sample.phase_seconds = clock_.take();
  sample.message_bytes = message_bytes(*mesh_) - sent_before;
  const DispatchPlan& plan = layer_.activations().plan;
  sample.rows = plan.rows();
  sample.row_bytes = row_bytes(plan, mesh_->ep().rank(), hidden.cols);
  std::vector<Index> rows_per_expert = plan.tokens_per_expert;
  mesh_->world().all_sum(std::span(rows_per_expert));
  sample.expert_load = load_max_over_mean({rows_per_expert}).front();
  return sample;
}

LayerGroup::LayerGroup(const EpWorld& world, const EpPoint& common)
    : world_(world),
      inputs_(world.config(), common, world.options().seed, world.world().rank()),
      reference_(reference_results(common)) {}

LayerGroup::Results LayerGroup::reference_results(const EpPoint& common) {
  LayerSubject subject(world_.config(), world_.reference(common), world_.options().seed);
  inputs_.prepare(kCheckedStep);
  subject.step(inputs_);
  const Communicator& all = world_.world();
  return {.output = Matrix::copy_of(subject.output()),
          .d_hidden = Matrix::copy_of(subject.d_hidden()),
          .d_router = sum_over(subject.d_router(), all),
          .d_gate_up = sum_over(subject.d_gate_up(), all),
          .d_down = sum_over(subject.d_down(), all)};
}

double LayerGroup::add(const PlannedPoint& planned) {
  LayerSubject& subject = subjects_.emplace_back(world_.config(), planned, world_.options().seed);
  inputs_.prepare(kCheckedStep);
  subject.step(inputs_);
  return world_.world().all_max(error_of(subject));
}

double LayerGroup::error_of(const LayerSubject& subject) const {
  const Index experts = world_.config().num_experts;
  const Matrix d_router = sum_over(subject.d_router(), world_.world());
  double error = error_of_rows(subject.output(), reference_.output);
  error = worse(error, error_of_rows(subject.d_hidden(), reference_.d_hidden));
  error = worse(error, error_of_rows(d_router, reference_.d_router));
  error = worse(error, expert_error(subject.d_gate_up(), reference_.d_gate_up, subject, experts));
  return worse(error, expert_error(subject.d_down(), reference_.d_down, subject, experts));
}

double LayerGroup::tolerance(DType dtype) {
  // fp32: three products deep, sums of some thousand terms in another order: 1e-6 measured. bf16 keeps 8 bits
  // of each factor: 1.3e-2 measured.
  return dtype == DType::kBF16 ? 4e-2 : 1e-5;
}

}  // namespace moeloom
