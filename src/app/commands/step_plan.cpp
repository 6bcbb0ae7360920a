#include "commands/step_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/plan/decide/overlap_choice.hpp"

#include <algorithm>
#include <cmath>

#include "cli/option_groups.hpp"
#include "run/kernel_plan.hpp"

namespace moeloom {
namespace {

StepCase step_case(const PlanRequest& request, Index ep) {
  return {.mesh = MeshShape{0, ep, {"dp", "ep"}}.completed(request.ranks),
          .ranks_per_node = std::min(request.ranks_per_node, request.ranks),
          .processors_per_node = request.processors_per_node,
          .threads = request.threads,
          .way = DispatcherKind::kAlltoall,
          .tokens = request.tokens / request.micro_batches,
          .sequence_length = request.sequence_length,
          .micro_batches = request.micro_batches,
          .expert_rows = request.expert_rows};
}

/// In a sparse layer, of the rank that has the most.
Index most_rows(const PlanRequest& request, const StepCase& step) {
  const double even = static_cast<double>(step.tokens * request.config.num_experts_per_tok);
  return std::llround(even * fullest_rank_load(step));
}

/// How the experts run on a mesh: as the loop, and as GMM request auto has them.
struct ExpertsPlan {
  GmmPrediction prediction;
  bool packs = false;
  double seconds(bool grouped) const {
    return !grouped ? prediction.loop_seconds : packs ? prediction.packed_seconds : prediction.gmm_seconds;
  }
};

ExpertsPlan experts_plan(const PlanRequest& request, const StepCase& step, const PredictExperts& predict) {
  if (!request.config.has_experts()) return {};
  KernelChoice choice;
  choice.gmm_budget_bytes = request.gmm_budget_bytes;
  const GmmFacts facts = gmm_facts(choice, request.config, step.mesh,
                                   {.tokens = step.tokens,
                                    .uses_per_packing = static_cast<double>(step.micro_batches),
                                    .recorded = std::nullopt},
                                   request.dtype);
  return {.prediction = predict(facts, step.mesh), .packs = decide_gmm(GmmRequest::kAuto, facts).packs};
}

/// As train would choose it if it knew the experts' predicted time.
Index chunks_of(const PlanRequest& request, const StepCase& step, std::optional<double> expert_seconds) {
  if (step.way != DispatcherKind::kAlltoall || !request.config.has_experts()) return 0;
  const ExchangeCase exchange = exchange_case(request.config, step);
  return decide_overlap(std::nullopt, {.dispatcher = DispatcherKind::kAlltoall,
                                       .ep_ranks = exchange.ep,
                                       .ep_nodes = exchange.ep / exchange.ep_on_node,
                                       .experts = exchange.num_experts / exchange.ep,
                                       .bytes_per_pair = exchange.tokens * exchange.top_k * exchange.hidden *
                                                         static_cast<Index>(sizeof(float)) / exchange.ep,
                                       .products_seconds = expert_seconds})
      .chunks;
}

PlanPoint point_of(const PlanRequest& request, const MachineRates& machine, StepCase step,
                   const std::vector<ParameterSpec>& specs, const ExpertsPlan& experts, bool grouped) {
  step.chunks = chunks_of(request, step, experts.seconds(grouped));
  PlanPoint point{.step = step,
                  .grouped = grouped,
                  .packs = grouped && experts.packs,
                  .sparse = request.config.has_experts()};
  point.seconds = step_seconds(request.config, specs, step, machine, experts.seconds(grouped));
  point.memory = memory_of(request, step, specs, point.packs);
  point.message_bytes = step_bytes(request.config, specs, step);
  point.fits = node_bytes(step, point.memory) <= request.memory_per_node;
  point.bottleneck = bottleneck(point.seconds);
  return point;
}

struct Part {
  const char* name;
  std::vector<Phase> phases;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all = {
      {"experts", {Phase::kExperts}},
      {"dense", {Phase::kEmbed, Phase::kAttention, Phase::kDense, Phase::kRouter, Phase::kOther}},
      {"loss", {Phase::kLoss}},
      {"exchange", {Phase::kPlan, Phase::kDispatch, Phase::kCombine}},
      {"reduce", {Phase::kReduce}},
      {"optimizer", {Phase::kOptimizer}}};
  return all;
}

std::string mpirun_words(Index ranks, Index node_ranks) {
  const std::string words = "mpirun -n " + std::to_string(ranks);
  return ranks <= node_ranks ? words : words + " --map-by ppr:" + std::to_string(node_ranks) + ":node";
}

/// What train would choose from sizes alone: whether rows travel in chunks where they may leave their node.
std::string overlap_words(const StepCase& step) {
  if (step.way != DispatcherKind::kAlltoall || step.mesh.world() <= step.ranks_per_node) return {};
  return " --overlap " + (step.chunks > 0 ? std::to_string(step.chunks) : "off");
}

/// The shape as its options, for a model that has no folder.
std::string model_words(const ModelOptions& model) {
  if (!model.folder.empty()) return " --model " + model.folder.string();
  ModelOptions copy = model;
  OptionTable table;
  add_model_options(table, copy);
  std::string words;
  for (const std::string& name : model.shape_given) words += " --" + name + " " + table.find(name)->get();
  return words;
}

}  // namespace

double PlanPoint::tokens_per_second() const {
  return static_cast<double>(step.tokens * step.micro_batches * step.mesh.world()) / step_seconds();
}

std::vector<DispatcherKind> known_ways() {
  return {kDispatcherKinds.begin(), kDispatcherKinds.end()};
}

std::vector<Index> ep_sizes(const PlanRequest& request) {
  const Index experts = request.config.has_experts() ? request.config.num_experts : 0;
  std::vector<Index> sizes;
  for (Index ep = 1; ep <= std::max<Index>(experts, 1); ++ep)
    if (mesh_violations({0, ep, {"dp", "ep"}}, request.ranks, experts).empty()) sizes.push_back(ep);
  return sizes;
}

std::vector<StepCase> steps_at(const PlanRequest& request, Index ep,
                               const std::vector<DispatcherKind>& ways) {
  std::vector<StepCase> steps;
  StepCase step = step_case(request, ep);
  for (const DispatcherKind way : ways) {
    step.way = way;
    // Alone, rows stay where they are: there is nothing to choose.
    if (ep == 1 ? way != DispatcherKind::kAlltoall : !can_run(way, exchange_case(request.config, step)))
      continue;
    step.chunks = chunks_of(request, step, std::nullopt);
    steps.push_back(step);
  }
  return steps;
}

std::vector<ParameterSpec> specs_at(const PlanRequest& request, Index ep) {
  return parameter_specs(request.config, experts_of(std::max<Index>(request.config.num_experts, 1), ep, 0));
}

MemoryNeed memory_of(const PlanRequest& request, const StepCase& step,
                     const std::vector<ParameterSpec>& specs, bool packs) {
  return training_memory(request.config, specs, step.mesh, step.way,
                         {.tokens = step.tokens,
                          .sequence_length = step.sequence_length,
                          .rows = most_rows(request, step),
                          .in_chunks = step.chunks > 0,
                          .threads = step.threads},
                         packs, request.dtype);
}

double node_bytes(const StepCase& step, const MemoryNeed& memory) {
  return memory.total() * static_cast<double>(step.ranks_per_node);
}

std::vector<PlanPoint> plan_points(const PlanRequest& request, const MachineRates& machine,
                                   const std::vector<DispatcherKind>& ways, const PredictExperts& predict) {
  std::vector<PlanPoint> points;
  for (const Index ep : ep_sizes(request)) {
    const std::vector<ParameterSpec> specs = specs_at(request, ep);
    const ExpertsPlan experts = experts_plan(request, step_case(request, ep), predict);
    for (const StepCase& step : steps_at(request, ep, ways))
      for (const bool grouped : {false, true})
        if (!grouped || request.config.has_experts())
          points.push_back(point_of(request, machine, step, specs, experts, grouped));
  }
  std::ranges::stable_sort(points, [](const PlanPoint& a, const PlanPoint& b) {
    return a.fits != b.fits ? a.fits : a.step_seconds() < b.step_seconds();
  });
  return points;
}

std::string bottleneck(const PhaseSeconds& seconds) {
  const auto of_part = [&](const Part& part) {
    double sum = 0;
    for (const Phase phase : part.phases) sum += seconds[static_cast<std::size_t>(phase)];
    return sum;
  };
  const Part& largest = *std::ranges::max_element(parts(), {}, of_part);
  return std::string(largest.name) + " " +
         std::to_string(std::lround(100 * of_part(largest) / total(seconds))) + " %";
}

std::string dispatcher_text(const PlanPoint& point) {
  if (point.step.mesh.ep == 1) return "-";
  std::string text(name_of(point.step.way));
  if (point.step.chunks > 0) text += " in " + std::to_string(point.step.chunks);
  return text;
}

std::string gmm_text(const PlanPoint& point) {
  return !point.grouped ? "loop" : point.packs ? "gmm, packed" : "gmm";
}

Index busy_node_ranks(const PlanRequest& request) {
  const Index on_node = std::min(request.ranks_per_node, request.ranks);
  return std::clamp<Index>(request.processors_per_node / std::max<Index>(request.threads, 1), 1, on_node);
}

std::vector<std::string> extrapolations(const PlanRequest& request, const MachineRates& machine,
                                        const PlanOptions& options) {
  std::vector<std::string> sentences;
  const Index near = std::min(request.ranks_per_node, request.ranks);
  const Index busy = busy_node_ranks(request);
  const std::string line = calibrate_line(calibration_of(request, options), busy, 1);
  if (machine.node_ranks < busy)
    sentences.push_back("rates are of " + std::to_string(machine.node_ranks) + " busy ranks; " +
                        std::to_string(busy) + " a node share its memory: `" + line + "` measures that");
  if (near > 1 && !machine.measured_node())
    sentences.push_back(
        "exchanges inside a node are taken from copying, because no two ranks measured them" +
        (busy > 1 ? ": `" + line + "` does" : "; two could if --threads left each processors of its own"));
  if (request.ranks > near && options.network.bytes_per_second > 0)
    sentences.push_back("the network is as --net gives it, without contention between nodes");
  if (request.ranks > machine.ranks)
    sentences.push_back(
        std::to_string(request.ranks) + " ranks are extrapolated from " + std::to_string(machine.ranks) +
        "; " +
        (request.expert_rows.empty() ? "routing is taken as even (--expert-load X: another), and " : "") +
        "every rank as fast");
  return sentences;
}

CalibrateOptions calibration_of(const PlanRequest& request, const PlanOptions& options) {
  return {.model = options.model,
          .sequence_length = request.sequence_length,
          .threads = request.threads,
          .dtype = request.dtype};
}

std::string calibrate_line(const CalibrateOptions& options, Index node_ranks, Index nodes) {
  return mpirun_words(node_ranks * nodes, node_ranks) + " moeloom calibrate" + model_words(options.model) +
         " --seq-len " + std::to_string(options.sequence_length) + " --threads " +
         std::to_string(options.threads) + (options.dtype == DType::kBF16 ? " --dtype bf16" : "");
}

std::string run_line(const PlanOptions& options, const PlanPoint& point) {
  const StepCase& step = point.step;
  const Index world = step.mesh.world();
  const Index sequences = step.tokens * step.micro_batches / step.sequence_length * world;
  std::string line = mpirun_words(world, step.ranks_per_node);
  if (point.sparse && !point.grouped) line += " -x MOELOOM_GMM_PATCH=0";  // unset, train runs them grouped
  line += " moeloom train" + model_words(options.model) + " --ep " + std::to_string(step.mesh.ep) +
          " --seq-len " + std::to_string(step.sequence_length) + " --global-batch " +
          std::to_string(sequences) + " --accumulate " + std::to_string(step.micro_batches);
  if (step.mesh.ep > 1) line += " --dispatcher " + std::string(name_of(step.way)) + overlap_words(step);
  if (options.threads > 0) line += " --threads " + std::to_string(options.threads);
  if (options.dtype == DType::kBF16) line += " --dtype bf16";
  if (options.gmm_budget_bytes != KernelChoice{}.gmm_budget_bytes)
    line += " --gmm-budget " + exact_bytes_text(options.gmm_budget_bytes);
  return line + " --data " + options.data.string();
}

}  // namespace moeloom
