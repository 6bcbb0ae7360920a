#include "moeloom/measure/sweep/comparison.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/comm/process_memory.hpp"
#include "moeloom/plan/decide/compute_dtype.hpp"

#include <algorithm>
#include <malloc.h>
#include <optional>

#include "moeloom/measure/layer_subject.hpp"
#include "moeloom/measure/sample.hpp"
#include "moeloom/measure/step_subject.hpp"

namespace moeloom {
namespace {

void describe(const PlannedPoint& planned, EpRow& row) {
  row.gmm_applied = std::ranges::any_of(planned.kernels.reports, [](const KernelReport& report) {
    return report.id == "fused_moe" && report.applied;
  });
  row.gmm_reason = planned.kernels.gmm.reason;
  row.dispatcher_used = name_of(planned.dispatcher.choice.kind);
  row.dispatcher_reason = planned.dispatcher.choice.reason;
  row.dtype_used = dtype_text(planned.kernels.dtype.type);
}

void refuse_unless_right(const EpPoint& point, double error, double tolerance) {
  if (error <= tolerance) return;
  throw AgreedError(text_of(point) + " differs from ep = 1 by " + number_text(error) + ", more than " +
                    number_text(tolerance) +
                    "; a wrong answer is not timed: leave this point out, and report it with this line");
}

/// The point with its kernels and its dispatcher; none, and the row says why, if it cannot run here.
std::optional<PlannedPoint> plan_or_skip(const EpWorld& world, const EpPoint& point, EpRow& row) {
  try {
    return world.plan(point);
  } catch (const AgreedError& refused) {  // by all ranks
    row.skipped = refused.what();
    return std::nullopt;
  }
}

/// The member with its check and its warm-up, after which its memory is known.
template <typename Group>
void add_member(const EpWorld& world, const PlannedPoint& planned, Group& group, std::size_t member,
                EpRow& row) {
  describe(planned, row);
  malloc_trim(0);  // memory that was freed and is used again would not be seen to grow
  const Index before = private_bytes();
  row.error = group.add(planned);
  row.tolerance = Group::tolerance(planned.kernels.dtype.type);
  refuse_unless_right(planned.point, row.error, row.tolerance);
  for (Index step = 0; step < world.options().warmup; ++step) {
    group.prepare(step);
    group.step(member);
  }
  malloc_trim(0);
  const auto grown = static_cast<double>(held_bytes(planned.dispatcher.settings.memory.get()) - before);
  row.memory_bytes = static_cast<Index>(world.world().all_max(grown));
}

template <typename Group>
std::vector<EpRow> measure_in(const EpWorld& world, const EpGroup& points, const EpRow& blank) {
  Group group(world, points.front());
  std::vector<EpRow> rows;
  std::vector<std::size_t> members;  // which row each member of the group has
  for (const EpPoint& point : points) {
    EpRow& row = rows.emplace_back(row_of(point, blank));
    // May measure rates, in memory that is not the point's.
    const std::optional<PlannedPoint> planned = plan_or_skip(world, point, row);
    if (!planned) continue;
    add_member(world, *planned, group, members.size(), row);
    members.push_back(rows.size() - 1);
  }
  std::vector<std::vector<WorldSample>> samples(members.size());
  for (Index i = 0; i < world.options().samples; ++i) {
    group.prepare(world.options().warmup + i);
    for (std::size_t member = 0; member < members.size(); ++member)
      samples[member].push_back(gather(group.step(member), world.world()));
  }
  for (std::size_t member = 0; member < members.size(); ++member)
    summarise(samples[member], rows[members[member]]);
  return rows;
}

}  // namespace

std::vector<EpRow> measure(const EpWorld& world, const EpGroup& group, const EpRow& blank) {
  return group.front().mode == BenchMode::kLayer ? measure_in<LayerGroup>(world, group, blank)
                                                 : measure_in<StepGroup>(world, group, blank);
}

}  // namespace moeloom
