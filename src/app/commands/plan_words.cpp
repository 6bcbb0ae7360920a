#include "commands/plan_words.hpp"

#include "base/text.hpp"
#include "plan/cost/rebalance_cost.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/flag_names.hpp"
#include "commands/rate_source.hpp"
#include "fields/adapter_text.hpp"
#include "fields/job_words.hpp"
#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

std::string mpirun_words(Index ranks, Index node_ranks) {
  const std::string words = "mpirun -n " + std::to_string(ranks);
  return ranks <= node_ranks ? words : words + " --map-by ppr:" + std::to_string(node_ranks) + ":node";
}

/// What train would choose from sizes alone: whether rows travel in chunks where they may leave their node.
std::string overlap_words(const Job& job) {
  const bool on_one = job.exchange.dispatcher == DispatcherKind::kShared;
  if (on_one || job.layout.mesh.world() <= job.layout.ranks_per_node) return {};
  return " --overlap " + (job.exchange.chunks > 0 ? std::to_string(job.exchange.chunks) : "off");
}

/// What train would let travel unasked.
std::string travel_words(const PlanOptions& options, const Job& job) {
  if (options.overlap) return {};
  return std::string(job.exchange.overlap_reduce ? "" : " --overlap-grad-reduce off") +
         " --overlap-param-gather off";
}

/// Quoted where a shell would see more than a word in it.
std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// The shape as its options, for a model that has no folder.
std::string model_words(const ModelOptions& model) {
  if (!model.folder.empty()) return " --model " + shell_word(model.folder.string());
  ModelOptions copy = model;
  OptionTable table;
  add_model_options(table, copy);
  std::string words;
  for (const std::string& name : model.shape_given)
    words += " --" + name + " " + shell_word(table.find(name)->get());
  return words;
}

Index nodes_of(const Layout& layout) {
  return ceil_div(layout.mesh.world(), layout.ranks_per_node);
}

/// "dp = 2, ep = 32, shared"
std::string mesh_text(const Job& job) {
  return job.layout.mesh.text() +
         (job.layout.mesh.ep == 1 ? "" : ", " + std::string(name_of(job.exchange.dispatcher)));
}

/// "26 GiB a rank (dp = 2, ep = 32, shared), 208 GiB for the 8 ranks of a node"
std::string need_text(const Job& job, const MemoryNeed& memory) {
  const std::string rank = bytes_text(memory.total()) + " a rank (" + mesh_text(job) + ")";
  if (job.layout.ranks_per_node == 1) return rank + ", alone on its node";
  return rank + ", " + bytes_text(node_memory_bytes(job, memory)) + " for the " +
         std::to_string(job.layout.ranks_per_node) + " ranks of a node";
}

}  // namespace

std::vector<std::string> extrapolations(const PlannedJob& planned, const MachineRates& machine,
                                        const PlanOptions& options) {
  std::vector<std::string> sentences;
  const Index near = std::min(planned.job.layout.ranks_per_node, planned.ranks());
  const Index busy = busy_node_ranks(planned);
  const std::string line = calibrate_line(calibration_of(planned, options), busy, 1);
  if (machine.node_ranks < busy)
    sentences.push_back("rates are of " + std::to_string(machine.node_ranks) + " busy ranks; " +
                        std::to_string(busy) + " a node share its memory: `" + line + "` measures that");
  if (near > 1 && !machine.measured_node())
    sentences.push_back(
        "exchanges inside a node are taken from copying, because no two ranks measured them" +
        (busy > 1 ? ": `" + line + "` does" : "; two could if --threads left each processors of its own"));
  if (planned.ranks() > near && options.network.bytes_per_second > 0)
    sentences.push_back("the network is as --net gives it, without contention between nodes");
  if (planned.ranks() > near && options.network.bytes_per_second == 0 && machine.unequal_links())
    sentences.push_back(
        "the network is as slow as the link of " + machine.slowest_host + ", which had " +
        readable(8e-9 * machine.link_slowest_bytes_per_second, 2) + " Gbit/s where the median host had " +
        readable(8e-9 * machine.link_median_bytes_per_second, 2) + ": every exchange waits for it");
  if (planned.ranks() > machine.ranks)
    sentences.push_back(
        std::to_string(planned.ranks()) + " ranks are extrapolated from " + std::to_string(machine.ranks) +
        "; " +
        (planned.job.exchange.expert_rows.empty()
             ? "routing is taken as even (--expert-load X or --routing trace:FILE: another), and "
             : "") +
        "every rank as fast");
  return sentences;
}

CalibrateOptions calibration_of(const PlannedJob& planned, const PlanOptions& options) {
  return {.model = options.model,
          .sequence_length = planned.job.batch.length,
          .threads = planned.job.layout.threads,
          .dtype = planned.dtype};
}

std::string calibrate_line(const CalibrateOptions& options, Index node_ranks, Index nodes) {
  return mpirun_words(node_ranks * nodes, node_ranks) + " moeloom calibrate" + model_words(options.model) +
         " --seq-len " + std::to_string(options.sequence_length) + " --threads " +
         std::to_string(options.threads) + (options.dtype == DType::kBF16 ? " --dtype bf16" : "");
}

Index memory_of_a_rank(const PlanOptions& options) {
  return options.memory_bytes / std::max<Index>(std::min(options.ranks_per_node, options.ranks), 1);
}

std::string run_line(const PlanOptions& options, const PredictedPoint& point, const GmmDecision& unasked) {
  const Job& job = point.job;
  const Index world = job.layout.mesh.world();
  std::string line = mpirun_words(world, job.layout.ranks_per_node);
  if (point.sparse && point.grouped != unasked.apply)
    line += std::string(" -x MOELOOM_GMM_PATCH=") + (point.grouped ? "force" : "0");
  line += " moeloom train" + model_words(options.model) + " --ep " + std::to_string(job.layout.mesh.ep) +
          " --seq-len " + std::to_string(job.batch.length) + " --global-batch " +
          std::to_string(job.batch.sequences) + " --accumulate " + std::to_string(job.batch.micro_batches);
  if (job.layout.mesh.ep > 1)
    line += " --dispatcher " + std::string(name_of(job.exchange.dispatcher)) + overlap_words(job);
  line += travel_words(options, job);
  if (options.threads > 0) line += " --threads " + std::to_string(options.threads);
  if (options.dtype == DType::kBF16) line += " --dtype bf16";
  if (options.gmm_budget_bytes != KernelOptions{}.gmm_budget_bytes)
    line += " --gmm-budget " + exact_bytes_text(options.gmm_budget_bytes);
  if (options.lora) line += " --lora " + shell_word(adapter_text(options.lora));
  line += with_flag_names(changed_keeping({}, job.keeping));
  if (const Index memory = memory_of_a_rank(options); memory > 0)
    line += " --memory " + exact_bytes_text(memory);
  return line + " --data " + shell_word(options.data.string());
}

std::string gain_text(const ModelConfig& config, const Job& job, const RebalanceRates& rates) {
  if (!job.exchange.expert_rows.empty()) {
    const RebalanceGain gain = rebalance_gain(config, job, rates);
    return "it would save " + milliseconds_text(gain.saved_seconds) + " a step of the " +
           milliseconds_text(gain.uneven_seconds) + " that uneven rows cost";
  }
  const std::optional<double> load = paying_load(config, job, rates);
  if (!load) return "replicas pay at no load of an expert";
  return "replicas pay from " + readable(*load) + " times the mean rows on one expert";
}

std::string memory_advice(const PlannedJob& planned, const PredictedPoint& smallest,
                          const std::optional<FittingJob>& fit) {
  const double programs = kProgramBytes * static_cast<double>(smallest.job.layout.ranks_per_node);
  const std::string needed = bytes_text(node_memory_bytes(smallest.job, smallest.memory) + programs);
  const std::string nothing = "nothing fits: the smallest need is " +
                              need_text(smallest.job, smallest.memory) + ", which has " +
                              bytes_text(planned.memory_per_node) + " beside program and MPI\n";
  if (!fit)
    return nothing + "no other layout of these tokens fits, down to one rank a node with one sequence at a " +
           "time; as it is the job needs nodes of " + needed + "\n";
  const Index nodes = nodes_of(fit->job.layout);
  const bool more = nodes > nodes_of(planned.job.layout);
  const std::string where = more ? ", on " + std::to_string(nodes) + " nodes instead of " +
                                       std::to_string(nodes_of(planned.job.layout))
                                 : "";
  return nothing + "the cheapest change that fits, with the same tokens a step" + where + ": " +
         with_flag_names(changed_plan_options(planned.job, fit->job)) + "\n  " +
         need_text(fit->job, fit->memory) + (more ? "\nas it is the job needs nodes of " + needed : "") +
         "\n";
}

}  // namespace moeloom
