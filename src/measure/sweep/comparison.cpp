#include "measure/sweep/comparison.hpp"

#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "measure/layer_subject.hpp"
#include "measure/step_subject.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/measure/peaks.hpp"
#include "plan/cost/step_flops.hpp"
#include "plan/decide/compute_dtype.hpp"

#include <deque>
#include <malloc.h>
#include <optional>

namespace moeloom {
namespace {

/// The layers of a comparison; every function is collective over the world.
class LayerGroup {
 public:
  using Check = LayerCheck;
  /// `common`: what all points share.
  LayerGroup(const SweepWorld& world, const EpPoint& common)
      : sizes_(layer_sizes(world.config())),
        seed_(world.settings().seed),
        inputs_(sizes_, common.workload, common.tokens, world.world(), seed_),
        check_(sizes_, world.mesh(1), inputs_, seed_) {}
  /// Checks the new member.
  CheckedSteps add(const Mesh& mesh, const PointSetup& setup) {
    return {.error = check_.error_of(
                subjects_.emplace_back(sizes_, mesh, setup.kernels, setup.dispatcher, seed_), inputs_)};
  }
  /// The step that step() measures from now on.
  void prepare(Index step) { inputs_.prepare(step); }
  StepSample step(std::size_t member) { return subjects_[member].step(inputs_); }

 private:
  const LayerSizes sizes_;
  const std::uint64_t seed_;
  LayerInputs inputs_;
  const LayerCheck check_;
  std::deque<LayerSubject> subjects_;
};

TrainingCase case_of(const SweepWorld& world, const EpPoint& common) {
  const Index length = world.settings().sequence_length;
  return {.model = world.config(),
          .sequences = common.tokens / length,
          .sequence_length = length,
          .seed = world.settings().seed,
          .routing = common.workload.recorded() ? std::optional(common.workload) : std::nullopt};
}

/// The same of training steps.
class StepGroup {
 public:
  using Check = StepCheck;
  StepGroup(const SweepWorld& world, const EpPoint& common)
      : case_(case_of(world, common)),
        tokens_(random_text(case_.seed, case_.sequence_length * common.ranks + (1 << 16))),
        check_(case_, world.mesh(1), tokens_) {}
  CheckedSteps add(const Mesh& mesh, const PointSetup& setup) {
    return check_.check(
        subjects_.emplace_back(case_, mesh, tokens_, setup.kernels, setup.dispatcher, setup.travel));
  }
  void prepare(Index) {}  // each trains its next step
  StepSample step(std::size_t member) { return subjects_[member].step(); }

 private:
  const TrainingCase case_;
  const TokenSource tokens_;
  const StepCheck check_;
  std::deque<StepSubject> subjects_;
};

void describe(const PointSetup& setup, EpRow& row) {
  row.gmm_applied = setup.gmm_applied;
  row.gmm_reason = setup.gmm_reason;
  row.dispatcher_used = name_of(setup.dispatcher.kind);
  row.dispatcher_reason = setup.dispatcher_reason;
  row.dtype_used = dtype_text(setup.dtype);
}

void refuse_unless_right(const EpPoint& point, double error, double tolerance) {
  if (error <= tolerance) return;
  throw AgreedError(text_of(point) + " differs from ep = 1 by " + number_text(error) + ", more than " +
                    number_text(tolerance) +
                    "; a wrong answer is not timed: leave this point out, and report it with this line");
}

/// None, and the row says why, if the point cannot run here.
std::optional<PointSetup> set_up_or_skip(const SweepWorld& world, const EpPoint& point, EpRow& row) {
  try {
    return world.set_up(point);
  } catch (const AgreedError& refused) {  // by all ranks
    row.skipped = refused.what();
    return std::nullopt;
  }
}

/// Memory that was freed, to the system.
void give_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// The member with its check and its warm-up, after which its memory is known.
template <typename Group>
void add_member(const SweepWorld& world, const EpPoint& point, const PointSetup& setup, Group& group,
                std::size_t member, EpRow& row) {
  describe(setup, row);
  give_back();  // memory that was freed and is used again would not be seen to grow
  const Index before = private_bytes();
  const CheckedSteps checked = group.add(world.mesh(point.ep), setup);
  row.error = checked.error;
  row.loss = checked.loss;
  row.tolerance = Group::Check::tolerance(setup.dtype);
  refuse_unless_right(point, row.error, row.tolerance);
  for (Index step = 0; step < world.settings().warmup; ++step) {
    group.prepare(step);
    group.step(member);
  }
  give_back();
  const auto grown = static_cast<double>(held_bytes(setup.dispatcher.memory.get()) - before);
  row.memory_bytes = static_cast<Index>(world.world().all_max(grown));
}

/// A peak that is shorter than the step slips between interruptions that the step meets; a third of a second
/// meets them too. Collective.
EpSample sample_of(const StepSample& mine, DType dtype, const Communicator& world) {
  EpSample sample{.step = gather(mine, world)};
  world.barrier();
  const double seconds = std::min(sample.step.seconds, 0.3);
  std::optional<double> of_bf16;  // none where bf16 is emulated, by products in fp32
  if (dtype == DType::kBF16) of_bf16 = bf16_peak_gflops(threads(), seconds);
  sample.peak_gflops = of_bf16 ? *of_bf16 : fma_peak_gflops(threads(), seconds);
  world.all_sum(std::span(&sample.peak_gflops, 1));
  return sample;
}

StepWork work_of(const SweepWorld& world, const EpPoint& point) {
  const ModelConfig& config = world.config();
  const auto rows = static_cast<double>(point.tokens * config.num_experts_per_tok);
  if (point.mode == BenchMode::kLayer)
    return {.flops = moe_product_flops(config, point.tokens), .rows = rows};
  Index layers = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) layers += config.is_sparse(layer);
  return {.flops = step_flops(config, point.tokens, world.settings().sequence_length),
          .rows = rows * static_cast<double>(layers)};
}

template <typename Group>
std::vector<EpRow> measure_in(const SweepWorld& world, const EpGroup& points, const EpRow& blank) {
  Group group(world, points.front());
  std::vector<EpRow> rows;
  std::vector<std::size_t> members;  // which row each member of the group has
  std::vector<DType> dtypes;         // that its products multiply
  for (const EpPoint& point : points) {
    EpRow& row = rows.emplace_back(row_of(point, blank));
    // May measure rates, in memory that is not the point's.
    const std::optional<PointSetup> setup = set_up_or_skip(world, point, row);
    if (!setup) continue;
    add_member(world, point, *setup, group, members.size(), row);
    members.push_back(rows.size() - 1);
    dtypes.push_back(setup->dtype);
  }
  std::vector<std::vector<EpSample>> samples(members.size());
  for (Index i = 0; i < world.settings().samples; ++i) {
    group.prepare(world.settings().warmup + i);
    for (std::size_t member = 0; member < members.size(); ++member)
      samples[member].push_back(sample_of(group.step(member), dtypes[member], world.world()));
  }
  for (std::size_t member = 0; member < members.size(); ++member)
    summarise(samples[member], samples.front(), work_of(world, points[members[member]]),
              rows[members[member]]);
  return rows;
}

}  // namespace

SweepWorld::SweepWorld(const SweepSettings& settings, const ModelConfig& config, SetUpPoint set_up,
                       const std::vector<EpGroup>& groups)
    : settings_(settings), config_(config), set_up_(std::move(set_up)) {
  const auto split = [this](Index ep) {
    if (!meshes_.contains(ep)) meshes_[ep] = std::make_unique<Mesh>(Communicator::world(), MeshShape{0, ep});
  };
  split(1);
  for (const EpGroup& group : groups)
    for (const EpPoint& point : group) split(point.ep);
}

std::vector<EpRow> measure(const SweepWorld& world, const EpGroup& group, const EpRow& blank) {
  return group.front().mode == BenchMode::kLayer ? measure_in<LayerGroup>(world, group, blank)
                                                 : measure_in<StepGroup>(world, group, blank);
}

}  // namespace moeloom
