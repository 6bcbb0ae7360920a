#include "moeloom/base/violations.hpp"

#include "cli/option_groups.hpp"
#include "cli/options.hpp"

namespace moeloom {
namespace {

bool shape_from_flags(const TrainOptions& options) {
  return options.model.folder.empty() && options.run.resume.empty();
}

void check_model(const TrainOptions& options, Violations& violations) {
  const ModelOptions& model = options.model;
  violations.unless(model.folder.empty() || options.run.resume.empty(),
                    "--resume takes the model from the checkpoint; remove --model " + model.folder.string());
  check_shape_source(model, violations);
  violations.unless(
      model.allow_missing.empty() || !model.folder.empty(),
      "--allow-missing speaks of the tensors of a --model folder, and none is given; remove it");
  if (shape_from_flags(options)) violations.add(config_violations(model.shape));
}

void check_mesh(const TrainOptions& options, Index world, Violations& violations) {
  const MeshShape shape{options.mesh.dp, options.mesh.ep, options.mesh.order};
  // Where the model is still to be read, its experts are checked then.
  const Index experts = shape_from_flags(options) ? options.model.shape.num_experts : 0;
  violations.add(mesh_violations(shape, world, experts));
}

/// Of counts that their rows have nothing against.
void check_batch(const TrainOptions& options, Index world, Violations& violations) {
  const BatchShape& batch = options.batch;
  const auto is_count = [](Index n) { return n >= 1 && n <= kLargestCount; };
  if (!is_count(batch.sequences) || !is_count(batch.micro_batches)) return;
  const Index shares = world * batch.micro_batches;
  violations.unless(batch.sequences % shares == 0,
                    "global-batch = " + value_text(batch.sequences) + " sequences do not divide over " +
                        value_text(world) + " ranks x " + value_text(batch.micro_batches) +
                        " micro-batches; choose a multiple of " + value_text(shares));
  if (!is_count(batch.exact) || batch.sequences % shares != 0) return;
  const Index each = batch.sequences / shares;
  violations.unless(each % batch.exact == 0, "exact = " + value_text(batch.exact) +
                                                 " sequences do not divide the " + value_text(each) +
                                                 " of a rank's micro-batch; --exact 1 fits every mesh");
  const RoutingOptions& routing = options.run.routing;
  violations.unless(batch.micro_batches == 1 || (routing.record.empty() && routing.replay.empty()),
                    "--record-routing and --replay-routing number tokens by rank, then by micro-batch, which "
                    "--exact with --accumulate above 1 does not; remove one");
}

void check_replaced_routing(const TrainOptions& options, Violations& violations) {
  const RoutingOptions& routing = options.run.routing;
  const RouterKind kind = options.router.kind.value_or(RouterKind::kTopK);
  const bool forced = options.router.forced.has_value(), replayed = !routing.replay.empty();
  violations.unless(!forced || !replayed,
                    "--force-routing and --replay-routing both replace what routers choose; give one");
  violations.unless(
      (!forced && !replayed) || kind == RouterKind::kTopK,
      "--router has nothing to choose where --force-routing or --replay-routing does; remove it");
  violations.unless(
      routing.record.empty() || kind != RouterKind::kExpertChoice,
      "--record-routing keeps as many experts of each token, and --router expert-choice has no such "
      "number; remove one");
  violations.unless(routing.record.empty() || routing.record != routing.replay,
                    "--record-routing and --replay-routing name one file; record into another");
}

void check_run(const RunOptions& run, Violations& violations) {
  const auto belongs = [&](const std::string& option, bool given, const std::string& to, bool is_there) {
    violations.unless(!given || is_there,
                      "--" + option + " is that of --" + to + ", which is not given; remove it");
  };
  belongs("export-dtype", run.export_dtype != DType::kF32, "export DIR", !run.export_folder.empty());
  belongs("trace-steps", run.trace.steps.has_value(), "trace FILE", !run.trace.file.empty());
  belongs("record-steps", run.routing.record_steps.has_value(), "record-routing FILE",
          !run.routing.record.empty());
  violations.unless(run.sample_chars == 0 || !run.prompt.empty(),
                    "--prompt must hold at least one character; --sample-chars 0 leaves the sample out");
}

}  // namespace

std::vector<std::string> option_violations(const TrainOptions& options, Index world) {
  Violations violations;
  TrainOptions copy = options;
  train_table(copy).check(violations);
  violations.unless(!options.data.sources.empty(),
                    "--data FILE is needed: the text or the tokens to train on");
  check_model(options, violations);
  check_mesh(options, world, violations);
  check_kernels(options.kernels, violations);
  check_batch(options, world, violations);
  check_router_options(options.router, violations);
  check_replaced_routing(options, violations);
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
    if (coefficient <= 0) return;
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
