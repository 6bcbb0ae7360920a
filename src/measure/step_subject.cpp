#include "measure/step_subject.hpp"

#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

#include "error.hpp"
#include "routed_tokens.hpp"

namespace moeloom {
namespace {

/// A recorded routing is given to every sparse layer, in the file's order of layers where it has as many.
TrainerHooks hooks_of(const TrainingCase& of) {
  if (!of.routing || !of.routing->recorded()) return {};
  const WorkloadShape shape{of.sequences * of.sequence_length, of.model.num_experts,
                            of.model.num_experts_per_tok};
  Index layers = 0;
  for (Index layer = 0; layer < of.model.num_hidden_layers; ++layer) layers += of.model.is_sparse(layer);
  const auto give = [workload = *of.routing, shape, layers](MicroBatchPlace place, Batch& batch) {
    batch.given_topk_idx.clear();
    for (Index layer = 0; layer < layers; ++layer)
      batch.given_topk_idx.push_back(choose_experts(workload, shape, 0, place.step * layers + layer,
                                                    {batch.first_token, batch.tokens()}));
  };
  return {.before = give, .after = {}};
}

TrainerSettings settings_of(const TrainingCase& of, const BatchShape& batch) {
  const ModelConfig& model = of.model;
  return {.schedule = {.peak = 1e-4, .warmup_steps = 1, .total_steps = 1'000'000},
          .batch = batch,
          .aux_loss_coef = model.has_experts() ? model.router_aux_loss_coef : 0,
          .hooks = hooks_of(of)};
}

/// A token's embedding is its logits, which layers of initial weights hardly move; every router reads them.
void route_as(const Workload& workload, const ModelConfig& model, std::uint64_t seed, ParameterStore& store) {
  const WorkloadShape shape{model.vocab_size, model.num_experts, model.num_experts_per_tok};
  write_logits(choose_experts(workload, shape, seed, 0, {0, model.vocab_size}), model.num_experts,
               store.find("model.embed_tokens.weight").value);
  for (Index layer = 0; layer < model.num_hidden_layers; ++layer)
    read_logits(store.find("model.layers." + std::to_string(layer) + ".mlp.gate.weight").value);
  store.mark_changed();
}

/// Of the thread that calls it.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Loss and gradient norm of each.
std::vector<double> first_steps(StepSubject& subject) {
  std::vector<double> numbers;
  for (Index step = 0; step < StepCheck::kSteps; ++step) {
    const StepReport report = subject.train();
    numbers.insert(numbers.end(), {report.loss, report.grad_norm});
  }
  subject.settle();
  return numbers;
}

}  // namespace

TokenSource random_text(std::uint64_t seed, Index bytes) {
  const int memory = ::memfd_create("moeloom-text", MFD_CLOEXEC);
  const std::filesystem::path path = "/proc/self/fd/" + std::to_string(memory);
  std::ofstream file(path, std::ios::binary);
  const CounterRandom random(seed, stream_of("text"));
  for (Index i = 0; i < bytes; ++i)
    file.put(static_cast<char>(random.bits(static_cast<std::uint64_t>(i)) & 0xff));
  if (!file.flush()) throw IoError("cannot write text into memory");
  TokenSource tokens(path, TokenFormat::kText);
  ::close(memory);  // it is mapped
  return tokens;
}

StepSubject::StepSubject(const TrainingCase& of, const Mesh& mesh, const TokenSource& tokens,
                         const KernelTable& kernels, const DispatcherSettings& dispatcher,
                         const Exchange& travel)
    : mesh_(&mesh),
      state_(make_training_state(
          of.model, mesh, {.kernels = kernels, .dispatcher = dispatcher, .job = {.exchange = travel}})),
      batch_{.sequences = of.sequences, .length = of.sequence_length},
      sampler_(tokens, split_tokens(tokens.size(), 0), batch_, mesh.world().size(), of.seed),
      trainer_(state_->decoder, state_->store, mesh, state_->optimizer, sampler_, settings_of(of, batch_)) {
  initialise(state_->store, of.model, of.seed);
  if (of.routing && !of.routing->recorded()) route_as(*of.routing, of.model, of.seed, state_->store);
  state_->store.settle();
}

StepSample StepSubject::step() {
  mesh_->world().barrier();
  if (state_->optimizer.gathers_by_layer()) train();
  const double processor_before = processor_seconds();
  const StepReport report = train();
  const double processor_after = processor_seconds();
  trainer_.settle();
  double load = 0, unevenness = 0, sparse = 0;
  for (const std::vector<Index>& rows : report.rows_per_expert) {
    load += max_over_mean(rows);
    unevenness += gini(rows);
    sparse += max_over_mean(rows) > 0 ? 1 : 0;
  }
  return {.seconds = report.seconds,
          .processor_seconds = processor_after - processor_before,
          .phase_seconds = report.phase_seconds,
          .message_bytes = report.message_bytes,
          .row_bytes = report.dispatch.row_bytes,
          .rows = rows_here(),
          .tokens = report.tokens,
          .expert_load = load / std::max(sparse, 1.0),
          .expert_gini = unevenness / std::max(sparse, 1.0)};
}

Index StepSubject::rows_here() const {
  Index rows = 0;
  for (const DecoderLayer& layer : state_->decoder.layers())
    if (const MoeLayer* moe = layer.moe()) rows += moe->experts().activations().plan.rows();
  return rows;
}

StepCheck::StepCheck(const TrainingCase& of, const Mesh& without_ep, const TokenSource& tokens) {
  StepSubject subject(of, without_ep, tokens, {});
  reference_ = first_steps(subject);
}

CheckedSteps StepCheck::check(StepSubject& subject) const {
  const std::vector<double> numbers = first_steps(subject);
  double error = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    error = worse(error, std::fabs(numbers[i] - reference_[i]) / std::fabs(reference_[i]));
  return {.error = subject.mesh().world().all_max(error), .loss = numbers[numbers.size() - 2]};
}

double StepCheck::tolerance(DType dtype) {
  // fp32: what another order of sums leaves of a loss and a norm. bf16: 1e-3 measured.
  return dtype == DType::kBF16 ? 1e-2 : 1e-5;
}

}  // namespace moeloom
