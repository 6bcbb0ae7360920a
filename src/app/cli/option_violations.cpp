#include "moeloom/base/violations.hpp"

#include <algorithm>

#include "cli/option_groups.hpp"
#include "cli/options.hpp"

namespace moeloom {
namespace {

constexpr Index kLongestSample = 10000;

bool shape_from_flags(const TrainOptions& options) {
  return options.model.folder.empty() && options.run.resume.empty();
}

bool knows_shape(const TrainOptions& options) {
  return options.knows({"model", "resume"}) &&
         std::ranges::none_of(shape_option_names(),
                              [&](const std::string& name) { return options.unread.contains(name); });
}

void check_model(const TrainOptions& options, Violations& violations) {
  const ModelOptions& model = options.model;
  violations.unless(model.folder.empty() || options.run.resume.empty(),
                    "--resume takes the model from the checkpoint; remove --model " + model.folder.string());
  check_shape_source(model, violations);
  violations.unless(
      model.allow_missing.empty() || !model.folder.empty() || !options.knows({"model"}),
      "--allow-missing speaks of the tensors of a --model folder, and none is given; remove it");
  if (shape_from_flags(options) && knows_shape(options)) violations.add(config_violations(model.shape));
}

void check_mesh(const TrainOptions& options, Index world, Violations& violations) {
  const MeshShape shape{options.mesh.dp, options.mesh.ep, options.mesh.order};
  violations.unless_at_least(0, "replace-every", options.mesh.replace_every);
  if (!options.knows({"dp", "ep", "mesh-order"})) return;
  // Where the model is still to be read, its experts are checked then.
  const bool known = shape_from_flags(options) && knows_shape(options);
  violations.add(mesh_violations(shape, world, known ? options.model.shape.num_experts : 0));
}

void check_batch(const TrainOptions& options, Index world, Violations& violations) {
  const BatchShape& batch = options.batch;
  const std::size_t before = violations.list().size();
  violations.unless_at_least(1, "seq-len", batch.length);
  violations.unless_at_least(1, "global-batch", batch.sequences);
  violations.unless_at_least(1, "accumulate", batch.micro_batches);
  violations.unless_at_least(0, "exact", batch.exact);
  if (violations.list().size() > before || !options.knows({"global-batch", "accumulate"})) return;
  const Index shares = world * batch.micro_batches;
  violations.unless(batch.sequences % shares == 0,
                    "global-batch = " + value_text(batch.sequences) + " sequences do not divide over " +
                        value_text(world) + " ranks x " + value_text(batch.micro_batches) +
                        " micro-batches; choose a multiple of " + value_text(shares));
  if (batch.exact == 0 || batch.sequences % shares != 0 || !options.knows({"exact"})) return;
  const Index each = batch.sequences / shares;
  violations.unless(each % batch.exact == 0, "exact = " + value_text(batch.exact) +
                                                 " sequences do not divide the " + value_text(each) +
                                                 " of a rank's micro-batch; --exact 1 fits every mesh");
  const RoutingOptions& routing = options.run.routing;
  violations.unless(batch.micro_batches == 1 || (routing.record.empty() && routing.replay.empty()),
                    "--record-routing and --replay-routing number tokens by rank, then by micro-batch, which "
                    "--exact with --accumulate above 1 does not; remove one");
}

void check_data(const TrainOptions& options, Index world, Violations& violations) {
  const DataOptions& data = options.data;
  violations.unless(!data.sources.empty() || !options.knows({"data"}),
                    "--data FILE is needed: the text or the tokens to train on");
  violations.unless_below_one("heldout", data.heldout);
  violations.unless_at_least(0, "skip-bad", data.skip_bad);
  violations.unless_not_negative("epochs", data.epochs);
  violations.unless(data.epochs <= 1e6, "epochs = " + value_text(data.epochs) + " must be at most 1e6");
  check_batch(options, world, violations);
}

void check_optimizer(const TrainOptions& options, Violations& violations) {
  const OptimizerOptions& optimizer = options.optimizer;
  const AdamW& adamw = optimizer.settings.adamw;
  violations.unless(optimizer.learning_rate.value_or(1) > 0,
                    "lr = " + value_text(optimizer.learning_rate) + " must be positive");
  violations.unless_at_least(0, "warmup", optimizer.warmup.value_or(0));
  violations.unless_at_least(0, "schedule-steps", optimizer.schedule_steps);
  violations.unless(optimizer.final_lr_fraction >= 0 && optimizer.final_lr_fraction <= 1,
                    "final-lr-fraction = " + value_text(optimizer.final_lr_fraction) + " must lie in [0, 1]");
  violations.unless_below_one("beta1", adamw.beta1);
  violations.unless_below_one("beta2", adamw.beta2);
  violations.unless_below_one("muon-momentum", optimizer.settings.muon.momentum);
  violations.unless(options.keeping.optimizer == OptimizerKind::kMuon ||
                        optimizer.settings.muon.momentum == Muon{}.momentum,
                    "--muon-momentum is that of --optimizer muon, which is not given; remove it");
  violations.unless(adamw.epsilon > 0, "eps = " + value_text(adamw.epsilon) + " must be positive");
  violations.unless_not_negative("weight-decay", adamw.weight_decay);
  violations.unless_not_negative("max-grad-norm", optimizer.settings.max_grad_norm);
}

/// Of a file that is written of some steps.
void check_steps(const std::string& file_option, const std::filesystem::path& file,
                 const std::string& steps_option, const std::optional<StepRange>& steps,
                 Violations& violations) {
  if (!steps) return;
  violations.unless(!file.empty(), "--" + steps_option + " are those of --" + file_option +
                                       " FILE, which is not given; remove it");
  violations.unless(0 <= steps->from && steps->from < steps->to,
                    "--" + steps_option + " " + value_text(*steps) +
                        " holds no step; FROM must be at least 0, and TO larger than FROM");
}

void check_run(const RunOptions& run, Violations& violations) {
  violations.unless(!run.folder.empty(), "--run DIR must not be empty");
  violations.unless_at_least(1, "steps", run.steps);
  violations.unless_at_least(0, "save-every", run.save_every);
  violations.unless_not_negative("save-minutes", run.save_minutes);
  violations.unless_at_least(0, "keep", run.keep);
  violations.unless_at_least(0, "eval-every", run.eval_every);
  violations.unless_at_least(1, "eval-sequences", run.eval_sequences);
  violations.unless_at_least(0, "check-replicas", run.check_replicas);
  violations.unless_at_least(0, "check-steps", run.check_steps);
  violations.unless_at_least(0, "sample-chars", run.sample_chars);
  violations.unless(run.sample_chars <= kLongestSample || run.sample_chars > kLargestCount,
                    "sample-chars = " + value_text(run.sample_chars) + " must be at most " +
                        value_text(kLongestSample) +
                        ": each looks back at all before it; generate writes longer texts");
  violations.unless_at_least(1, "log-every", run.log_every);
  violations.unless(
      !run.stall_seconds || *run.stall_seconds == 0 || *run.stall_seconds >= 1,
      "stall-timeout = " + value_text(run.stall_seconds) + " must be at least 1 second; 0 leaves it out");
  violations.unless(run.export_dtype == DType::kF32 || !run.export_folder.empty(),
                    "--export-dtype is that of --export DIR, which is not given; remove it");
  check_steps("trace", run.trace.file, "trace-steps", run.trace.steps, violations);
  check_steps("record-routing", run.routing.record, "record-steps", run.routing.record_steps, violations);
  violations.unless(run.routing.record.empty() || run.routing.record != run.routing.replay,
                    "--record-routing and --replay-routing name one file; record into another");
  violations.unless(run.sample_chars == 0 || !run.prompt.empty(),
                    "--prompt must hold at least one character; --sample-chars 0 leaves the sample out");
}

}  // namespace

std::vector<std::string> option_violations(const TrainOptions& options, Index world) {
  Violations violations;
  check_model(options, violations);
  check_mesh(options, world, violations);
  check_kernels(options.kernels, violations);
  check_data(options, world, violations);
  check_optimizer(options, violations);
  check_router_options(options.router, violations);
  violations.unless(!options.router.forced || options.run.routing.replay.empty(),
                    "--force-routing and --replay-routing both replace what routers choose; give one");
  const bool replaced = options.router.forced || !options.run.routing.replay.empty();
  const RouterKind kind = options.router.kind.value_or(RouterKind::kTopK);
  violations.unless(
      !replaced || kind == RouterKind::kTopK,
      "--router has nothing to choose where --force-routing or --replay-routing does; remove it");
  violations.unless(
      options.run.routing.record.empty() || kind != RouterKind::kExpertChoice,
      "--record-routing keeps as many experts of each token, and --router expert-choice has no such "
      "number; remove one");
  check_run(options.run, violations);
  return violations.list();
}

std::vector<std::string> shape_violations(const ModelOptions& given, const ModelConfig& loaded) {
  ModelOptions asked = given;
  ModelOptions found;
  found.shape = loaded;
  OptionTable asked_table;
  OptionTable found_table;
  add_model_options(asked_table, asked);
  add_model_options(found_table, found);
  std::vector<std::string> violations;
  for (const std::string& name : given.shape_given) {
    const std::string wanted = asked_table.find(name)->get();
    const std::string there = found_table.find(name)->get();
    if (wanted != there)
      violations.push_back("--" + name + " = " + wanted + ", but the model that is loaded has " + there +
                           "; remove the option");
  }
  return violations;
}

std::vector<std::string> router_loss_violations(const TrainOptions& options, const ModelConfig& config) {
  std::vector<std::string> violations;
  const auto refuse = [&](const char* name, double coefficient, const std::string& reason) {
    if (coefficient <= 0 || !options.knows({name})) return;
    violations.push_back("--" + std::string(name) + " " + value_text(coefficient) +
                         " has nothing to weigh: " + reason + "; remove it");
  };
  const std::string no_experts = "no layer of this model has experts";
  if (!config.has_experts()) refuse("aux-loss-coef", options.router.aux_loss_coef.value_or(0), no_experts);
  if (!config.has_z_loss())
    refuse("z-loss-coef", options.router.z_loss_coef,
           config.has_experts() ? "the router of " + config.model_type +
                                      " scores each expert by itself, without a sum over all of them"
                                : no_experts);
  return violations;
}

std::vector<std::string> routing_violations(const RoutingOptions& options, const ModelConfig& config) {
  if (config.has_experts() || (options.record.empty() && options.replay.empty())) return {};
  const char* name = options.record.empty() ? "--replay-routing " : "--record-routing ";
  return {name + (options.record.empty() ? options.replay : options.record).string() +
          " needs experts, and no layer of this model has any; remove it"};
}

MeshShape mesh_shape(const MeshOptions& options, Index world) {
  return MeshShape{options.dp, options.ep, options.order}.completed(world);
}

Schedule schedule(const TrainOptions& options, Index hidden_size) {
  const OptimizerOptions& optimizer = options.optimizer;
  const Index total = optimizer.schedule_steps > 0 ? optimizer.schedule_steps : options.run.steps;
  const Index warmup = optimizer.learning_rate ? usual_warmup(total) : careful_warmup(total);
  return {.peak = optimizer.learning_rate.value_or(usual_peak(hidden_size)),
          .warmup_steps = optimizer.warmup.value_or(warmup),
          .total_steps = total,
          .final_fraction = optimizer.final_lr_fraction};
}

}  // namespace moeloom
