#include "moeloom/train/trainer.hpp"

#include "moeloom/base/errors.hpp"

#include <chrono>
#include <cmath>

namespace moeloom {
namespace {

std::string list_of_ranks(const std::vector<std::string>& where) {
  std::string text;
  for (std::size_t rank = 0; rank < where.size(); ++rank)
    if (!where[rank].empty())
      text += (text.empty() ? "" : "; ") + where[rank] + " on rank " + std::to_string(rank);
  return text;
}

std::string layer_text(const Decoder& decoder) {
  const auto layer = decoder.first_non_finite_layer();
  if (!layer) return {};
  if (*layer == decoder.config().num_hidden_layers) return "the final norm";
  return "the output of layer " + std::to_string(*layer);
}

}  // namespace

Trainer::Trainer(Decoder& decoder, ParameterStore& store, const Mesh& mesh, ShardedOptimizer& optimizer,
                 const BatchSampler& sampler, TrainerSettings settings)
    : decoder_(decoder),
      store_(store),
      mesh_(mesh),
      optimizer_(optimizer),
      sampler_(sampler),
      settings_(std::move(settings)) {}

StepReport Trainer::step(Index step) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t sent_before = bytes_sent(mesh_);
  StepReport report;
  report.step = step;
  report.learning_rate = settings_.schedule.at(step);
  store_.restart_gradients();
  run_micro_batches(report);
  if (!report.skipped) update(report);
  report.phase_seconds = decoder_.clock().take();
  report.bytes_sent = bytes_sent(mesh_) - sent_before;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void Trainer::run_micro_batches(StepReport& report) {
  const BatchShape& shape = settings_.batch;
  const auto micro_batches = static_cast<double>(shape.accumulation);
  const auto targets = static_cast<double>(shape.global_batch * shape.sequence_length);
  const LossScales scales{.lm = 1.0 / targets,
                          .aux = settings_.aux_loss_coef / micro_batches,
                          .z = settings_.z_loss_coef / micro_batches};
  report.tokens = shape.global_batch * shape.sequence_length;
  for (Index micro_batch = 0; micro_batch < shape.accumulation; ++micro_batch) {
    decoder_.clock().enter(Phase::kData);
    const Batch batch = sampler_.train(report.step, micro_batch, mesh_.world().rank());
    const MicroBatchLosses losses = decoder_.forward_backward(batch, scales);
    report.lm_loss += losses.nll_sum * scales.lm;
    report.aux_loss += losses.aux_loss / micro_batches;
    report.z_loss += losses.z_loss / micro_batches;
    report.loss =
        report.lm_loss + settings_.aux_loss_coef * report.aux_loss + settings_.z_loss_coef * report.z_loss;
    if (!std::isfinite(report.loss)) return on_not_finite(report, "the loss", layer_text(decoder_));
    count_rows(report.rows_per_expert);
  }
  sum_rows(report.rows_per_expert);
}

void Trainer::count_rows(std::vector<std::vector<Index>>& rows_per_expert) const {
  const auto& layers = decoder_.layers();
  rows_per_expert.resize(layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].moe() == nullptr) continue;
    const std::vector<Index>& counts = layers[layer].moe()->plan.tokens_per_expert;
    rows_per_expert[layer].resize(counts.size());
    for (std::size_t e = 0; e < counts.size(); ++e) rows_per_expert[layer][e] += counts[e];
  }
}

void Trainer::sum_rows(std::vector<std::vector<Index>>& rows_per_expert) const {
  std::vector<std::int64_t> flat;
  for (const auto& layer : rows_per_expert) flat.insert(flat.end(), layer.begin(), layer.end());
  mesh_.world().all_sum(flat);
  auto next = flat.begin();
  for (auto& layer : rows_per_expert)
    for (Index& rows : layer) rows = *next++;
}

void Trainer::update(StepReport& report) {
  decoder_.clock().enter(Phase::kReduce);
  optimizer_.reduce_gradients();
  report.grad_norm = optimizer_.gradient_norm();
  if (!std::isfinite(report.grad_norm))
    return on_not_finite(report, "the gradient", optimizer_.first_non_finite());
  decoder_.clock().enter(Phase::kOptimizer);
  optimizer_.update(report.learning_rate, report.grad_norm, report.rows_per_expert);
}

void Trainer::on_not_finite(StepReport& report, const std::string& what, const std::string& where) {
  report.skipped = true;
  if (settings_.on_nan == OnNan::kSkip) return;
  const std::string ranks = list_of_ranks(mesh_.world().all_gather_text(where));
  throw AgreedError("step " + std::to_string(report.step) + ": " + what + " is not finite" +
                    (ranks.empty() ? "" : "; first in " + ranks) +
                    "; lower --lr, or leave such steps out with --on-nan skip");
}

double Trainer::evaluate(const std::vector<Batch>& batches) {
  double nll_sum = 0;
  Index targets = 0;
  for (const Batch& batch : batches) {
    const MicroBatchLosses losses = decoder_.evaluate(batch);
    nll_sum += losses.nll_sum;
    targets += losses.counted_targets;
  }
  decoder_.clock().take();
  return targets == 0 ? 0.0 : nll_sum / static_cast<double>(targets);
}

std::int64_t bytes_sent(const Mesh& mesh) {
  return mesh.world().traffic().bytes_sent + mesh.dp().traffic().bytes_sent + mesh.ep().traffic().bytes_sent;
}

}  // namespace moeloom
