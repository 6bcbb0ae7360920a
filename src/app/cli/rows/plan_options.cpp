// What this machine or another would do: kernels, calibrate and plan.
#include "base/text.hpp"
#include "measure/recorded_workload.hpp"
#include "moeloom/base/violations.hpp"

#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "fields/adapter_text.hpp"
#include "fields/network_text.hpp"
#include "fields/option_groups.hpp"
#include "fields/overwritten.hpp"

namespace moeloom {
namespace {

constexpr const char* kAsTrain = "as of train";

OptionTable table_of(KernelsOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.group("Mesh and kernels");
  table
      .add("ranks", "N", "decide for so many ranks; 0: as many as `ep`", "before machines are asked for",
           options.ranks)
      .at_least(0);
  table.add("ep", "N", "ranks that share the experts of a layer", kAsTrain, options.ep).at_least(1);
  add_kernel_options(table, options.kernels);
  table.group("Batch");
  add_batch_options(table, options.batch);
  return table;
}

void add_rate_options(OptionTable& table, Index& threads, DType& dtype) {
  add_threads_option(table, threads, "threads of a rank; 0: its share of the node's processors");
  table.add_choice("dtype", "what products multiply; bf16 needs a CPU with its instructions", kAsTrain, dtype,
                   {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
}

OptionTable table_of(CalibrateOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.group("Measurement");
  table
      .add("seq-len", "N", "tokens of one sequence", "attention's time goes with it", options.sequence_length)
      .at_least(1);
  add_rate_options(table, options.threads, options.dtype);
  table
      .add("seconds", "X", "to spend on work inside a rank, or as long as four rounds of each take",
           "a busy machine needs more rounds", options.seconds)
      .positive();
  return table;
}

void add_cluster_options(OptionTable& table, PlanOptions& options) {
  table.group("Cluster");
  table.add("ranks", "N", "of the job; every dp x ep of them is planned", "the question", options.ranks)
      .at_least(1);
  table.add("ranks-per-node", "N", "0: all on one", "what stays on a node is cheap", options.ranks_per_node)
      .at_least(0);
  table
      .add("processors", "N", "of a node; 0: as this one has", "nodes of the cluster, not this one",
           options.processors)
      .at_least(0);
  table.add("memory", "BYTES",
            "of a node, whose ranks share it as ceilings (--memory of train); 0: as this one has",
            "nodes of the cluster, not this one", options.memory_bytes, read_bytes, exact_bytes_text);
  table.add("net", "BANDWIDTH,LATENCY",
            "between nodes: 200Gbit,2us; without it what `moeloom calibrate` measured",
            "the network of the cluster, not this one's", options.network, read_network, network_text);
}

void add_work_options(OptionTable& table, PlanOptions& options) {
  table.group("Work");
  table.add("tokens-per-rank", "N", "of a step", "work that grows with the ranks", options.tokens_per_rank)
      .at_least(1);
  table.add("seq-len", "N", "tokens of one sequence", kAsTrain, options.sequence_length).at_least(1);
  table.add("accumulate", "N", "micro-batches that one step is cut into", kAsTrain, options.accumulate)
      .at_least(1);
  table
      .add("expert-load", "X", "rows of the fullest expert over the mean, as metrics.jsonl has it; 1: even",
           "the fullest rank's time is the step's", options.expert_load)
      .must([](double load) { return load >= 1; }, "is below 1, the mean of all experts; choose 1 or more");
  table
      .add("routing", "trace:FILE",
           "instead: rows of each expert as --record-routing recorded them; @LAYER: of one",
           "load as it was, expert by expert", options.routing)
      .against("expert-load", "they are two answers to how rows lie");
  add_rate_options(table, options.threads, options.dtype);
  table.add("gmm-budget", "BYTES", "as of train: the most that packed experts of a layer may take", kAsTrain,
            options.gmm_budget_bytes, read_bytes, exact_bytes_text);
  add_lora_option(table, options.lora);
  add_format_options(table, options.keeping);
  add_memory_options(table, options.keeping);
  table.add_choice("overlap",
                   "whether rows, sums of gradients and new weights travel under products; auto: where train "
                   "lets them, off: nowhere",
                   "what overlap gains", options.overlap, {{"auto", true}, {"off", false}});
  table.add("calibrate", "BOOL", "measure this machine anew, whatever the user's cache holds",
            "a machine that has changed", options.calibrate);
}

OptionTable table_of(PlanOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  add_cluster_options(table, options);
  add_work_options(table, options);
  table.group("Output");
  table
      .add("rows", "N", "of the table, the fastest first; 0: all", "1024 ranks have many meshes",
           options.rows)
      .at_least(0);
  table.add("data", "FILE", "what the recommended line trains on", "a line that can be run as it is",
            options.data);
  table.add("json", "FILE", "also write every row there", "scripts", options.json);
  return table;
}

/// The command line into the options that `table` names, and what is wrong with them so far.
Violations read(const OptionTable& table, int argc, const char* const* argv, ModelOptions& model) {
  Violations violations;
  note_shape(read_command_line(table, argc, argv, violations), model);
  check_shape_source(model, violations);
  return violations;
}

/// Sequences of a rank are whole, in every micro-batch.
void check_tokens(const PlanOptions& o, Violations& violations) {
  if (!violations.empty()) return;  // of rows: counts that are none
  const Index least = o.sequence_length * o.accumulate;
  violations.unless(o.tokens_per_rank % least == 0,
                    "tokens-per-rank = " + std::to_string(o.tokens_per_rank) +
                        " is no multiple of seq-len x accumulate = " + std::to_string(o.sequence_length) +
                        " x " + std::to_string(o.accumulate) + " = " + std::to_string(least) + "; choose " +
                        std::to_string(ceil_div(o.tokens_per_rank, least) * least));
}

void check_ranks(const PlanOptions& o, Violations& violations) {
  if (o.ranks < 1 || o.ranks_per_node < 1) return;
  violations.unless(o.ranks % o.ranks_per_node == 0,
                    "ranks-per-node = " + std::to_string(o.ranks_per_node) + " does not divide ranks = " +
                        std::to_string(o.ranks) + ": nodes are planned as equal");
}

/// FILE of trace:FILE@LAYER; empty for what is none.
std::filesystem::path recorded_file(const std::string& routing) {
  if (!routing.starts_with(RecordedWorkload::kPrefix)) return {};
  const std::string file = routing.substr(std::string_view(RecordedWorkload::kPrefix).size());
  std::error_code ignored;
  return std::filesystem::exists(file, ignored) ? file : file.substr(0, file.rfind('@'));
}

}  // namespace

KernelsOptions parse_kernels_options(int argc, const char* const* argv) {
  KernelsOptions options;
  Violations violations = read(table_of(options), argc, argv, options.model);
  check_kernels(options.kernels, violations);
  violations.throw_if_any();
  return options;
}

CalibrateOptions parse_calibrate_options(int argc, const char* const* argv) {
  CalibrateOptions options;
  read(table_of(options), argc, argv, options.model).throw_if_any();
  return options;
}

PlanOptions parse_plan_options(int argc, const char* const* argv) {
  PlanOptions options;
  Violations violations = read(table_of(options), argc, argv, options.model);
  violations.unless(options.routing.empty() || options.routing.starts_with(RecordedWorkload::kPrefix),
                    "--routing " + options.routing + " is no trace:FILE, which a recording is named by");
  refuse_overwriting(
      {"json", options.json},
      {{"model", options.model.folder}, {"data", options.data}, {"routing", recorded_file(options.routing)}},
      violations);
  check_tokens(options, violations);
  check_ranks(options, violations);
  violations.throw_if_any();
  if (options.ranks_per_node == 0) options.ranks_per_node = options.ranks;
  return options;
}

Help kernels_help() {
  KernelsOptions options;
  return "moeloom kernels: the kernels, what each replaces, and the decision for a model and mesh\n\n"
         "  moeloom kernels --model DIR --ranks 4 --ep 2\n" +
         help_of(table_of(options));
}

Help calibrate_help() {
  CalibrateOptions options;
  return "moeloom calibrate: how fast this machine does each kind of work, kept for `moeloom plan`\n\n"
         "  mpirun -n 2 moeloom calibrate --model DIR\n" +
         help_of(table_of(options));
}

Help plan_help() {
  PlanOptions options;
  return "moeloom plan: which mesh, dispatcher and kernels to run, predicted\n\n"
         "  moeloom plan --model DIR --ranks 1024 --ranks-per-node 64 --net 200Gbit,2us\n" +
         help_of(table_of(options));
}

}  // namespace moeloom
