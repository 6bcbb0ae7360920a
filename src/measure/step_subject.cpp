#include "moeloom/measure/step_subject.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <unistd.h>

#include "moeloom/measure/error.hpp"
#include "run/run_report.hpp"

namespace moeloom {
namespace {

constexpr Index kCheckedSteps = 2;

/// Bytes that nothing can learn. The file is gone as soon as it is mapped.
TokenSource random_text(const Communicator& world, std::uint64_t seed, Index bytes) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("moeloom-bench-" + std::to_string(::getpid()) + "-" + std::to_string(world.rank()));
  std::ofstream file(path, std::ios::binary);
  const CounterRandom random(seed, stream_of("text"));
  for (Index i = 0; i < bytes; ++i)
    file.put(static_cast<char>(random.bits(static_cast<std::uint64_t>(i)) & 0xff));
  if (!file.flush()) throw IoError("cannot write " + path.string());
  TokenSource tokens(path, TokenFormat::kText);
  std::filesystem::remove(path);
  return tokens;
}

BatchShape batch_of(const EpWorld& world, const EpPoint& point) {
  const Index length = world.options().sequence_length;
  return {point.tokens / length, length, 1, point.ranks};
}

TrainerSettings settings_of(const EpWorld& world, const EpPoint& point) {
  const BenchEpOptions& o = world.options();
  const ModelConfig& config = world.config();
  return {.schedule = {.peak = 1e-4, .warmup_steps = 1, .total_steps = kCheckedSteps + o.warmup + o.samples},
          .batch = batch_of(world, point),
          .aux_loss_coef = config.has_router_losses() ? config.router_aux_loss_coef : 0};
}

}  // namespace

StepSubject::StepSubject(const EpWorld& world, const PlannedPoint& planned, const TokenSource& tokens)
    : mesh_(planned.mesh),
      model_(make_model_memory(world.config(), *mesh_, planned.kernels.table, planned.dispatcher.settings, {},
                               {})),
      sampler_(tokens, split_tokens(tokens.size(), 0), batch_of(world, planned.point), world.options().seed),
      trainer_(model_->decoder, model_->store, *mesh_, model_->optimizer, sampler_,
               settings_of(world, planned.point)) {
  initialise(model_->store, world.config(), world.options().seed);
}

StepSample StepSubject::step(Index step) {
  mesh_->world().barrier();
  const StepReport report = train(step);
  const std::vector<double> loads = load_max_over_mean(report.rows_per_expert);
  const auto sparse = static_cast<double>(std::ranges::count_if(loads, [](double load) { return load > 0; }));
  return {.seconds = report.seconds,
          .phase_seconds = report.phase_seconds,
          .message_bytes = report.message_bytes,
          .row_bytes = row_bytes_here(),
          .rows = rows_here(),
          .expert_load = std::reduce(loads.begin(), loads.end()) / std::max(sparse, 1.0)};
}

Index StepSubject::rows_here() const {
  Index rows = 0;
  for (const DecoderLayer& layer : model_->decoder.layers())
    if (const MoeActivations* moe = layer.moe()) rows += moe->plan.rows();
  return rows;
}

Index StepSubject::row_bytes_here() const {
  Index bytes = 0;
  for (const DecoderLayer& layer : model_->decoder.layers())
    if (const MoeActivations* moe = layer.moe())
      bytes += row_bytes(moe->plan, mesh_->ep().rank(), model_->decoder.config().hidden_size);
  return bytes;
}

StepGroup::StepGroup(const EpWorld& world, const EpPoint& common)
    : world_(world),
      tokens_(random_text(world.world(), world.options().seed,
                          world.options().sequence_length * common.ranks + (1 << 16))) {
  StepSubject subject(world, world.reference(common), tokens_);
  reference_ = first_steps(subject);
}

std::vector<double> StepGroup::first_steps(StepSubject& subject) {
  std::vector<double> numbers;
  for (Index step = 0; step < kCheckedSteps; ++step) {
    const StepReport report = subject.train(step);
    numbers.insert(numbers.end(), {report.loss, report.grad_norm});
  }
  return numbers;
}

double StepGroup::add(const PlannedPoint& planned) {
  const std::vector<double> numbers = first_steps(subjects_.emplace_back(world_, planned, tokens_));
  double error = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double difference = std::fabs(numbers[i] - reference_[i]) / std::fabs(reference_[i]);
    error = worse(error, difference);
  }
  return world_.world().all_max(error);
}

double StepGroup::tolerance(DType dtype) {
  // fp32: what another order of sums leaves of a loss and a norm. bf16: 1e-3 measured.
  return dtype == DType::kBF16 ? 1e-2 : 1e-5;
}

StepSample StepGroup::step(std::size_t member) {
  return subjects_[member].step(kCheckedSteps + step_);
}

}  // namespace moeloom
