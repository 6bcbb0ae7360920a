#include "commands/plan_words.hpp"

#include "moeloom/base/text.hpp"

#include <algorithm>

#include "cli/adapter_text.hpp"
#include "cli/option_groups.hpp"

namespace moeloom {
namespace {

std::string mpirun_words(Index ranks, Index node_ranks) {
  const std::string words = "mpirun -n " + std::to_string(ranks);
  return ranks <= node_ranks ? words : words + " --map-by ppr:" + std::to_string(node_ranks) + ":node";
}

/// What train would choose from sizes alone: whether rows travel in chunks where they may leave their node.
std::string overlap_words(const StepCase& step) {
  if (!way_of(step.kind).in_chunks || step.mesh.world() <= step.ranks_per_node) return {};
  return " --overlap " + (step.chunks > 0 ? std::to_string(step.chunks) : "off");
}

/// What train would let travel unasked.
std::string travel_words(const PlanOptions& options, const StepCase& step) {
  if (options.overlap) return {};
  return std::string(step.overlap_reduce ? "" : " --overlap-grad-reduce off") + " --overlap-param-gather off";
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

Index nodes_of(const Job& job) {
  return ceil_div(job.ranks, job.ranks_per_node);
}

/// "dp = 2, ep = 32, shared"
std::string mesh_text(const StepCase& step) {
  return step.mesh.text() + (step.mesh.ep == 1 ? "" : ", " + std::string(name_of(step.kind)));
}

/// "26 GiB a rank (dp = 2, ep = 32, shared), 208 GiB for the 8 ranks of a node"
std::string need_text(const StepCase& step, const MemoryNeed& memory) {
  const std::string rank = bytes_text(memory.total()) + " a rank (" + mesh_text(step) + ")";
  if (step.ranks_per_node == 1) return rank + ", alone on its node";
  return rank + ", " + bytes_text(node_memory_bytes(step, memory)) + " for the " +
         std::to_string(step.ranks_per_node) + " ranks of a node";
}

}  // namespace

std::vector<std::string> extrapolations(const Job& job, const MachineRates& machine,
                                        const PlanOptions& options) {
  std::vector<std::string> sentences;
  const Index near = std::min(job.ranks_per_node, job.ranks);
  const Index busy = busy_node_ranks(job);
  const std::string line = calibrate_line(calibration_of(job, options), busy, 1);
  if (machine.node_ranks < busy)
    sentences.push_back("rates are of " + std::to_string(machine.node_ranks) + " busy ranks; " +
                        std::to_string(busy) + " a node share its memory: `" + line + "` measures that");
  if (near > 1 && !machine.measured_node())
    sentences.push_back(
        "exchanges inside a node are taken from copying, because no two ranks measured them" +
        (busy > 1 ? ": `" + line + "` does" : "; two could if --threads left each processors of its own"));
  if (job.ranks > near && options.network.bytes_per_second > 0)
    sentences.push_back("the network is as --net gives it, without contention between nodes");
  if (job.ranks > near && options.network.bytes_per_second == 0 && machine.unequal_links())
    sentences.push_back(
        "the network is as slow as the link of " + machine.slowest_host + ", which had " +
        readable(8e-9 * machine.link_slowest_bytes_per_second, 2) + " Gbit/s where the median host had " +
        readable(8e-9 * machine.link_median_bytes_per_second, 2) + ": every exchange waits for it");
  if (job.ranks > machine.ranks)
    sentences.push_back(
        std::to_string(job.ranks) + " ranks are extrapolated from " + std::to_string(machine.ranks) + "; " +
        (job.expert_rows.empty()
             ? "routing is taken as even (--expert-load X or --routing trace:FILE: another), and "
             : "") +
        "every rank as fast");
  return sentences;
}

CalibrateOptions calibration_of(const Job& job, const PlanOptions& options) {
  return {.model = options.model,
          .sequence_length = job.sequence_length,
          .threads = job.threads,
          .dtype = job.dtype};
}

std::string calibrate_line(const CalibrateOptions& options, Index node_ranks, Index nodes) {
  return mpirun_words(node_ranks * nodes, node_ranks) + " moeloom calibrate" + model_words(options.model) +
         " --seq-len " + std::to_string(options.sequence_length) + " --threads " +
         std::to_string(options.threads) + (options.dtype == DType::kBF16 ? " --dtype bf16" : "");
}

Index memory_of_a_rank(const PlanOptions& options) {
  return options.memory_bytes / std::max<Index>(std::min(options.ranks_per_node, options.ranks), 1);
}

std::string run_line(const PlanOptions& options, const PredictedPoint& point) {
  const StepCase& step = point.step;
  const Index world = step.mesh.world();
  const Index sequences = step.tokens * step.micro_batches / step.sequence_length * world;
  std::string line = mpirun_words(world, step.ranks_per_node);
  if (point.sparse && !point.grouped) line += " -x MOELOOM_GMM_PATCH=0";  // unset, train runs them grouped
  line += " moeloom train" + model_words(options.model) + " --ep " + std::to_string(step.mesh.ep) +
          " --seq-len " + std::to_string(step.sequence_length) + " --global-batch " +
          std::to_string(sequences) + " --accumulate " + std::to_string(step.micro_batches);
  if (step.mesh.ep > 1) line += " --dispatcher " + std::string(name_of(step.kind)) + overlap_words(step);
  line += travel_words(options, step);
  if (options.threads > 0) line += " --threads " + std::to_string(options.threads);
  if (options.dtype == DType::kBF16) line += " --dtype bf16";
  if (options.gmm_budget_bytes != KernelOptions{}.gmm_budget_bytes)
    line += " --gmm-budget " + exact_bytes_text(options.gmm_budget_bytes);
  if (options.lora) line += " --lora " + adapter_text(options.lora);
  if (step.recompute != Recompute::kNone) line += " --recompute " + std::string(name_of(step.recompute));
  if (step.optimizer != OptimizerKind::kAdamW) line += " --optimizer " + std::string(name_of(step.optimizer));
  if (step.moments != MomentFormat::kFp32) line += " --moments " + std::string(name_of(step.moments));
  if (step.masters != Storage::kFp32) line += " --masters " + std::string(name_of(step.masters));
  if (step.gradients != Storage::kFp32) line += " --gradients " + std::string(name_of(step.gradients));
  if (step.shard_dense) line += " --shard-dense yes";
  if (step.offload) line += " --offload " + options.offload.string();
  if (const Index memory = memory_of_a_rank(options); memory > 0)
    line += " --memory " + exact_bytes_text(memory);
  return line + " --data " + options.data.string();
}

std::string changed_options(const Job& before, const Job& after) {
  std::string options;
  const auto add = [&](const char* name, Index Job::*field) {
    if (before.*field == after.*field) return;
    options += (options.empty() ? "--" : " --") + std::string(name) + " " + std::to_string(after.*field);
  };
  add("ranks", &Job::ranks);
  add("ranks-per-node", &Job::ranks_per_node);
  add("tokens-per-rank", &Job::tokens);
  add("accumulate", &Job::micro_batches);
  if (before.moments != after.moments)
    options += (options.empty() ? "--moments " : " --moments ") + std::string(name_of(after.moments));
  if (before.masters != after.masters)
    options += (options.empty() ? "--masters " : " --masters ") + std::string(name_of(after.masters));
  if (before.gradients != after.gradients)
    options += (options.empty() ? "--gradients " : " --gradients ") + std::string(name_of(after.gradients));
  if (before.shard_dense != after.shard_dense)
    options += options.empty() ? "--shard-dense yes" : " --shard-dense yes";
  if (before.offload != after.offload) options += options.empty() ? "--offload DIR" : " --offload DIR";
  if (before.recompute != after.recompute)
    options += (options.empty() ? "--recompute " : " --recompute ") + std::string(name_of(after.recompute));
  return options;
}

std::string memory_advice(const Job& job, const PredictedPoint& smallest,
                          const std::optional<FittingJob>& fit) {
  const std::string needed = bytes_text(node_memory_bytes(smallest.step, smallest.memory));
  const std::string nothing = "nothing fits: the smallest need is " +
                              need_text(smallest.step, smallest.memory) + ", which has " +
                              bytes_text(job.memory_per_node) + "\n";
  if (!fit)
    return nothing + "no other layout of these tokens fits, down to one rank a node with one sequence at a " +
           "time; as it is the job needs nodes of " + needed + "\n";
  const Index nodes = nodes_of(fit->job);
  const bool more = nodes > nodes_of(job);
  const std::string where =
      more ? ", on " + std::to_string(nodes) + " nodes instead of " + std::to_string(nodes_of(job)) : "";
  return nothing + "the cheapest change that fits, with the same tokens a step" + where + ": " +
         changed_options(job, fit->job) + "\n  " + need_text(fit->step, fit->memory) +
         (more ? "\nas it is the job needs nodes of " + needed : "") + "\n";
}

}  // namespace moeloom
