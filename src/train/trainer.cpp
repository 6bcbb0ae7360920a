#include "train/trainer.hpp"

#include "base/meanwhile.hpp"
#include "model/decoder.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "train/non_finite.hpp"

#include <cmath>
#include <numeric>

#include "step_routing.hpp"

namespace moeloom {
namespace {

constexpr const char* kWayOut = "; lower the learning rate, or leave such steps out: on nan = skip";

/// Of steps 0, 1, ..., whether it is the last of `every` many.
bool falls_on(Index every, Index step) {
  return every > 0 && (step + 1) % every == 0;
}

/// While it lives, adapters drop inputs by the masks of a step: those of its first run in every other.
class DropsInputs {
 public:
  DropsInputs(ParameterStore& store, std::uint64_t seed, Index step) : store_(store) {
    const CounterRandom random(seed, stream_of("adapter-dropout"));
    store.drop_inputs(random.bits(static_cast<std::uint64_t>(step)));
  }
  DropsInputs(const DropsInputs&) = delete;
  DropsInputs& operator=(const DropsInputs&) = delete;
  ~DropsInputs() { store_.keep_inputs(); }

 private:
  ParameterStore& store_;
};

}  // namespace

Trainer::Trainer(Decoder& decoder, ParameterStore& store, const Mesh& mesh, ShardedOptimizer& optimizer,
                 BatchSource batches, TrainerSettings settings)
    : decoder_(decoder),
      store_(store),
      mesh_(mesh),
      optimizer_(optimizer),
      batches_(std::move(batches)),
      settings_(std::move(settings)) {
  const BatchShape& batch = settings_.batch;
  const LeafSettings& leaves = store.leaves();
  if (!leaves.exact()) return;
  require(batch.exact > 0, "exact sums need micro-batches that are the same on every mesh");
  require(batch.sequences_per_micro_batch(mesh.world().size()) % leaves.sequences == 0 &&
              batch.sequences == leaves.sequences * leaves.per_step,
          "a rank's micro-batch must be whole leaves of the exact sums, and the step all of them");
}

StepReport Trainer::step(Index step) {
  decoder_.clock().start();
  decoder_.clock().enter_step(step, 0);
  const std::int64_t sent_before = message_bytes(mesh_);
  const DispatchTraffic dispatched_before = decoder_.dispatch_traffic();
  const std::vector<RebalanceCounts> rebalanced_before = decoder_.rebalance_counts();
  const Index packings_before = decoder_.compute_weights().packings;
  StepReport report;
  report.step = step;
  report.learning_rate = settings_.schedule.at(step);
  StepRouting routing(decoder_, mesh_, store_.leaves().exact());
  run_micro_batches(report, routing);
  if (falls_on(settings_.check_steps, step) && !report.skipped) run_again(report);
  if (falls_on(settings_.check_replicas, step)) compare_replicas(report);
  update(report, routing);
  held_.clear();
  if (falls_on(settings_.check_replicas, step + 1)) {
    settle();
    held_ = held_hashes(store_, optimizer_);
  }
  report.message_bytes = message_bytes(mesh_) - sent_before;
  report.dispatch = decoder_.dispatch_traffic() - dispatched_before;
  report.rebalance = decoder_.rebalance_counts();
  for (std::size_t layer = 0; layer < report.rebalance.size(); ++layer)
    report.rebalance[layer] -= rebalanced_before[layer];
  report.packings = decoder_.compute_weights().packings - packings_before;
  report.packed_bytes = decoder_.compute_weights().bytes;
  report.phase_seconds = decoder_.clock().take();
  report.seconds = std::reduce(report.phase_seconds.begin(), report.phase_seconds.end());
  return report;
}

Batch Trainer::batch_of(MicroBatchPlace place) const {
  Batch batch = batches_.train(place.step, place.micro_batch, mesh_.world().rank());
  if (settings_.hooks.before) settings_.hooks.before(place, batch);
  return batch;
}

std::optional<ChosenCounts> Trainer::count_ahead(Index step) {
  const Index micro_batches = settings_.batch.micro_batches;
  if (decoder_.balance().over != BalanceOver::kGlobalBatch || settings_.aux_loss_coef == 0 ||
      micro_batches == 1)
    return std::nullopt;
  settle();
  ChosenCounts counts;
  for (Index micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
    counts.add(decoder_.count_chosen(batch_of({step, micro_batch})));
  return counts;
}

LossScales Trainer::scales_of(Index step, StepTokens tokens) const {
  if (tokens.targets == 0)
    throw AgreedError("step " + std::to_string(step) + ": none of the " + std::to_string(tokens.tokens) +
                          " tokens of the global batch is learned, so there is no mean loss",
                      Cause::kData);
  return {.lm = 1.0 / static_cast<double>(tokens.targets),
          .aux = settings_.aux_loss_coef,
          .z = settings_.z_loss_coef,
          .micro_batches = settings_.batch.micro_batches,
          .step_tokens = tokens.tokens};
}

void Trainer::run_micro_batches(StepReport& report, StepRouting& routing,
                                const std::function<void(Index)>& look_at) {
  const BatchShape& shape = settings_.batch;
  const DropsInputs drops(store_, settings_.seed, report.step);
  decoder_.clock().enter(Phase::kData);
  const StepTokens tokens = batches_.tokens_of(report.step);
  const LossScales scales = scales_of(report.step, tokens);
  report.tokens = tokens.tokens;
  report.targets = tokens.targets;
  const std::optional<ChosenCounts> ahead = count_ahead(report.step);
  const Meanwhile travelling(Interlude::calling<&ShardedOptimizer::progress>(optimizer_));
  const bool exact = store_.leaves().exact();
  double nll_sum = 0;
  store_.restart_gradients();
  for (Index micro_batch = 0; micro_batch < shape.micro_batches && !report.skipped; ++micro_batch) {
    decoder_.clock().enter_step(report.step, micro_batch);
    decoder_.clock().enter(Phase::kData);
    const MicroBatchPlace place{report.step, micro_batch};
    const Batch batch = batch_of(place);
    const bool is_last = micro_batch + 1 == shape.micro_batches;
    const PartHooks hooks{.weights_needed = micro_batch == 0 ? arrival() : std::function<void(Index)>(),
                          .gradients_done = look_at ? look_at : reduction_in(is_last)};
    MicroBatchLosses losses = decoder_.forward_backward(batch, scales, ahead ? &*ahead : nullptr, hooks);
    if (hooks.gradients_done) {
      decoder_.clock().enter(Phase::kReduce);
      optimizer_.finish_reduction();
    }
    if (settings_.hooks.after) settings_.hooks.after(place, batch, decoder_);
    nll_sum += losses.nll_sum;  // exact where sums are, and so whatever the micro-batches
    report.lm_loss = exact ? nll_sum * scales.lm : report.lm_loss + losses.nll_sum * scales.lm;
    routing.add(std::move(losses.routers));
    if (!std::isfinite(report.lm_loss)) leave_out(report, "the loss", [&] { return where_the_loss_broke(); });
  }
  routing.begin_sum();
}

std::function<void(Index)> Trainer::arrival() {
  if (!optimizer_.gathers_by_layer()) return {};
  return [this](Index part) { optimizer_.await_weights(part); };
}

std::function<void(Index)> Trainer::reduction_in(bool is_last) {
  if (!optimizer_.reduces_by_layer() || !(is_last || optimizer_.reduces_each())) return {};
  return [this, is_last](Index part) { optimizer_.begin_reduction(part, is_last); };
}

void Trainer::run_again(const StepReport& first) {
  decoder_.clock().enter(Phase::kOther);
  const NamedHashes before = gradient_hashes(store_);
  const auto refuse = [&](const std::string& found) {
    throw DifferenceError(
        "step " + std::to_string(first.step) + ": computed twice from the same weights and tokens, " + found +
        "; a processor or its memory is at fault, go on from the last checkpoint elsewhere");
  };
  store_.mark_changed();  // what was packed of the weights is packed again
  StepReport again;
  again.step = first.step;
  StepRouting routing(decoder_, mesh_, store_.leaves().exact());
  try {
    run_micro_batches(again, routing);
  } catch (const AgreedError& error) {
    refuse(std::string("the second time ") + error.what());
  }
  const std::string where = first_difference(before, gradient_hashes(store_), mesh_.world());
  if (!where.empty()) refuse("it differs, first in " + where);
  if (again.skipped) refuse("the loss is not finite the second time");
  if (again.lm_loss != first.lm_loss) refuse("the gradients are the same, but not the loss");
}

/// Before the update: it gathers each weight from its owner, which mends a number that changed elsewhere and
/// spreads one that changed there.
void Trainer::compare_replicas(const StepReport& report) {
  decoder_.clock().enter(Phase::kOther);
  const auto refuse = [&](const std::string& found) {
    throw DifferenceError("step " + std::to_string(report.step) + ": " + found +
                          "; memory or a link has changed a number, go on from the last checkpoint");
  };
  if (!held_.empty())
    if (const std::string where = first_difference(held_, held_hashes(store_, optimizer_), mesh_.world());
        !where.empty())
      refuse("a number is not what the update before left; first " + where);
  const std::string where =
      first_difference_of_replicas({store_, optimizer_, batches_, report.step, report.learning_rate}, mesh_);
  if (!where.empty()) refuse("replicas are not the same; first " + where);
}

void Trainer::update(StepReport& report, StepRouting& routing) {
  decoder_.clock().enter(Phase::kReduce);
  if (!report.skipped) {
    if (!optimizer_.reduces_by_layer()) optimizer_.reduce_gradients();
    report.grad_norm = optimizer_.gradient_norm();
  }
  routing.finish(report);
  report.loss =
      report.lm_loss + settings_.aux_loss_coef * report.aux_loss + settings_.z_loss_coef * report.z_loss;
  if (report.skipped) return;
  if (!std::isfinite(report.loss))
    return leave_out(report, "the loss", [&] { return where_the_loss_broke(); });
  if (!std::isfinite(report.grad_norm))
    return leave_out(report, "the gradient", [&] { return where_the_gradient_broke(report.step); });
  decoder_.clock().enter(Phase::kOptimizer);
  optimizer_.update(report.learning_rate, report.grad_norm, report.rows_per_expert);
  move_router_biases(routing.chosen(), decoder_.config().num_experts, settings_.router_bias_rate, store_);
}

template <typename Where>
void Trainer::leave_out(StepReport& report, const std::string& what, Where where) {
  report.skipped = true;
  if (settings_.on_nan == OnNan::kSkip) return;
  throw AgreedError("step " + std::to_string(report.step) + ": " + what + " is not finite; " + where());
}

std::string Trainer::where_the_loss_broke() const {
  const std::string output = first_non_finite_output(decoder_, mesh_.world());
  const std::string weight = first_non_finite_weight(store_, mesh_.world());
  const std::string first = output.empty() ? "the output of every layer is finite" : "first in " + output;
  if (weight.empty()) return first + kWayOut;
  return first + "; the weight " + weight + " is not finite itself; go on from an earlier checkpoint";
}

/// The reduction has added up the ranks' gradients, which are told apart by running the step once more:
/// its weights are still there, and the same tokens give the same numbers.
std::string Trainer::where_the_gradient_broke(Index step) {
  StepReport again;
  again.step = step;
  StepRouting routing(decoder_, mesh_, store_.leaves().exact());
  GradientSearch search(store_);
  const auto look_at = [&](Index part) {
    search.look_at(part);
    store_.drop_gradients(part);
  };
  const bool is_sharded = store_.dense().gradients;
  run_micro_batches(again, routing, is_sharded ? look_at : std::function([](Index) {}));
  const std::string first =
      is_sharded ? search.first(mesh_.world()) : first_non_finite_gradient(store_, mesh_.world());
  return (first.empty() ? "that of each rank is, their sum is not" : "first in that of " + first) + kWayOut;
}

void Trainer::settle() {
  optimizer_.await_weights();
}

double Trainer::evaluate(const std::vector<Batch>& batches) {
  settle();
  double nll_sum = 0;
  Index targets = 0;
  for (const Batch& batch : batches) {
    const MicroBatchLosses losses = decoder_.evaluate(batch);
    nll_sum += losses.nll_sum;
    targets += losses.counted_targets;
  }
  return targets == 0 ? 0.0 : nll_sum / static_cast<double>(targets);
}

std::int64_t message_bytes(const Mesh& mesh) {
  return mesh.world().traffic().message_bytes + mesh.dp().traffic().message_bytes +
         mesh.ep().traffic().message_bytes;
}

}  // namespace moeloom
