#include "measure/sweep/points.hpp"

#include "base/checksum.hpp"
#include "plan/decide/compute_dtype.hpp"
#include "plan/decide/decide.hpp"

#include <algorithm>

namespace moeloom {
namespace {

std::vector<Index> eps_of(const SweepSettings& settings, Index experts, Index world) {
  if (!settings.eps.empty()) return settings.eps;
  std::vector<Index> eps;
  for (Index ep = 1; ep <= std::min(world, experts); ++ep)
    if (world % ep == 0) eps.push_back(ep);
  return eps;
}

/// ep x gmm x dispatcher x dtype of what `common` says.
EpGroup group_of(const SweepSettings& settings, Index experts, const EpPoint& common) {
  EpGroup group;
  EpPoint point = common;
  for (const Index ep : eps_of(settings, experts, common.ranks))
    for (const GmmRequest gmm : settings.gmm)
      for (const std::optional<DispatcherKind>& dispatcher : settings.dispatchers)
        for (const DType dtype : settings.dtypes) {
          if (dtype == DType::kBF16 && gmm == GmmRequest::kNever) continue;
          point.ep = ep;
          point.gmm = gmm;
          point.dispatcher = dispatcher;
          point.dtype = dtype;
          group.push_back(point);
        }
  return group;
}

}  // namespace

std::string_view name_of(BenchMode mode) {
  return mode == BenchMode::kLayer ? "layer" : "step";
}
std::string_view name_of(Scaling scaling) {
  return scaling == Scaling::kStrong ? "strong" : "weak";
}

std::string_view routing_of(const EpPoint& point) {
  return point.mode == BenchMode::kStep && !point.workload.recorded() ? "natural" : name_of(point.workload);
}

std::string text_of(const EpPoint& point) {
  const auto word = [](std::string_view text) { return std::string(text); };
  return word(name_of(point.mode)) + " " + word(name_of(point.scaling)) + " " + word(routing_of(point)) +
         " tokens=" + std::to_string(point.tokens) + " ranks=" + std::to_string(point.ranks) +
         " ep=" + std::to_string(point.ep) + " gmm=" + word(name_of(point.gmm)) +
         " dispatcher=" + word(name_of(point.dispatcher)) + " dtype=" + word(dtype_text(point.dtype));
}

std::vector<EpGroup> groups_of(const SweepSettings& settings, Index experts, Index world) {
  std::vector<EpGroup> groups;
  for (const BenchMode mode : settings.modes)
    for (const Scaling scaling : settings.scalings) {
      EpPoint common;
      common.mode = mode;
      common.scaling = scaling;
      common.ranks = world;
      common.tokens = scaling == Scaling::kStrong ? settings.tokens : settings.tokens_per_rank * world;
      if (mode == BenchMode::kStep) groups.push_back(group_of(settings, experts, common));
      for (const Workload& workload : settings.workloads) {
        if (mode == BenchMode::kStep && !workload.recorded()) continue;
        common.workload = workload;
        groups.push_back(group_of(settings, experts, common));
      }
    }
  return groups;
}

std::string settings_text(const SweepSettings& settings, const ModelConfig& config,
                          const std::vector<std::string>& given, const std::string& machine) {
  const std::string model = config.to_document().dump();
  std::string text = "model=" + hex_text(checksum(std::as_bytes(std::span(model)))) +
                     " seq_len=" + std::to_string(settings.sequence_length) +
                     " warmup=" + std::to_string(settings.warmup) +
                     " samples=" + std::to_string(settings.samples) +
                     " seed=" + std::to_string(settings.seed) + " commit=" + settings.commit;
  for (const Workload& workload : settings.workloads)
    if (const RecordedWorkload* recorded = workload.recorded())
      text += " " + recorded->name() + "=" + hex_text(recorded->file().checksum());
  if (settings.rebalance) text += " rebalance=yes";
  for (const std::string& variable : given) text += " " + variable;
  return text + " machine=" + machine;
}

}  // namespace moeloom
