// What a sweep over ep measures: the points that follow from its settings in a world.
#pragma once

#include "measure/workload.hpp"
#include "moeloom/job/dispatcher_kind.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/model/hf/config.hpp"

namespace moeloom {

enum class BenchMode { kLayer, kStep };  // a MoE layer forward and backward, or a whole training step
enum class Scaling { kStrong, kWeak };   // the same tokens in all, or on each rank
std::string_view name_of(BenchMode mode);
std::string_view name_of(Scaling scaling);

struct SweepSettings {
  std::vector<BenchMode> modes = {BenchMode::kLayer, BenchMode::kStep};
  std::vector<Scaling> scalings = {Scaling::kStrong, Scaling::kWeak};
  std::vector<Index> eps;  // empty: every divisor of the ranks that has an expert for each rank
  std::vector<GmmRequest> gmm = {GmmRequest::kNever, GmmRequest::kAuto, GmmRequest::kForce};
  std::vector<std::optional<DispatcherKind>> dispatchers = {std::nullopt};  // none: auto
  std::vector<DType> dtypes = {DType::kF32};
  std::vector<Workload> workloads = {Workload::kBalanced};  // of the layer; recorded ones of the step too
  bool rebalance = false;                                   // replicas of experts where ep > 1 and they pay
  Index tokens = 4096;                                      // strong: over all ranks
  Index tokens_per_rank = 1024;                             // weak
  Index sequence_length = 128;                              // of the training step
  Index warmup = 2;
  Index samples = 9;
  std::uint64_t seed = 0;
  std::string commit = "unknown";
};

/// One thing to measure: all of it in words and numbers, so that two are the same if their keys are.
struct EpPoint {
  BenchMode mode = BenchMode::kLayer;
  Scaling scaling = Scaling::kStrong;
  Workload workload = Workload::kBalanced;  // of a step, unless it is recorded: as its router has it
  Index ranks = 1;
  Index ep = 1;
  GmmRequest gmm = GmmRequest::kNever;
  std::optional<DispatcherKind> dispatcher = {};  // none: auto
  DType dtype = DType::kF32;
  Index tokens = 0;  // over all ranks
};
/// "balanced", "trace:FILE", or "natural" for a training step that routes by itself.
std::string_view routing_of(const EpPoint& point);
/// "layer strong ranks=4 ep=2 gmm=force ...", for people.
std::string text_of(const EpPoint& point);

/// Points that are measured in turn, sample by sample, because they will be compared: they differ in ep,
/// gmm, dispatcher and dtype alone.
using EpGroup = std::vector<EpPoint>;
/// In the order in which they are measured. A loop over experts has no bf16 form: it is fp32 alone.
std::vector<EpGroup> groups_of(const SweepSettings& settings, Index experts, Index world);

/// What a measurement depends on beside its point. machine: CPU and libraries; given: what else was set.
std::string settings_text(const SweepSettings& settings, const ModelConfig& config,
                          const std::vector<std::string>& given, const std::string& machine);

}  // namespace moeloom
