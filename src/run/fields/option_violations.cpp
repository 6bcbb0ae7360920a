#include "moeloom/base/violations.hpp"
#include "moeloom/run/options.hpp"

#include "fields/option_groups.hpp"
#include "fields/overwritten.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

bool shape_from_flags(const TrainOptions& options) {
  return options.model.folder.empty() && options.run.resume.empty();
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
                                                 " of a rank's micro-batch; `exact` 1 fits every mesh");
  const RoutingOptions& routing = options.run.routing;
  violations.unless(batch.micro_batches == 1 || (routing.record.empty() && routing.replay.empty()),
                    "`record-routing` and `replay-routing` number tokens by rank, then by micro-batch, which "
                    "`exact` with `accumulate` above 1 does not; remove one");
}

void check_recordings(const TrainOptions& options, Violations& violations) {
  const RunOptions& run = options.run;
  const RoutingOptions& routing = run.routing;
  violations.unless(routing.record.empty() ||
                        (routing.record != routing.replay && !is_same_file(routing.record, routing.replay)),
                    "`record-routing` and `replay-routing` name one file; record into another");
  std::vector<NamedPath> inputs = {
      {"model", options.model.folder}, {"tokenizer", options.model.tokenizer}, {"resume", run.resume}};
  for (const DataSource& source : options.data.sources) inputs.push_back({"data", source.file});
  refuse_overwriting({"record-routing", routing.record}, inputs, violations);
  inputs.push_back({"replay-routing", routing.replay});
  refuse_overwriting({"trace", run.trace.file}, inputs, violations);
}

}  // namespace

std::vector<std::string> option_violations(const TrainOptions& options, Index world) {
  Violations violations;
  TrainOptions said;
  const OptionTable table = train_table(said);  // which knows the defaults
  said = options;
  table.check(violations);
  check_shape_source(options.model, violations);
  if (shape_from_flags(options)) violations.add(config_violations(options.model.shape));
  check_mesh(options, world, violations);
  check_kernels(options.kernels, violations);
  check_batch(options, world, violations);
  check_router_options(options.router, violations);
  const RunOptions& run = options.run;
  check_recordings(options, violations);
  violations.unless(run.sample_chars == 0 || !run.prompt.empty(),
                    "`prompt` must hold at least one character; `sample-chars` 0 leaves the sample out");
  return violations.list();
}

}  // namespace moeloom
