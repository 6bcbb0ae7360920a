#include "moeloom/base/text.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/measure/recorded_workload.hpp"

#include "cli/network_text.hpp"
#include "cli/option_groups.hpp"
#include "cli/options.hpp"
#include "cli/processors.hpp"

namespace moeloom {
namespace {

void add_rate_options(OptionTable& table, Index& threads, DType& dtype) {
  table.add("threads", "N", "threads of a rank; 0: its share of the node's processors", threads);
  table.add_choice("dtype", "what products multiply; bf16 needs a CPU with its instructions", dtype,
                   {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
}

OptionTable table_of(CalibrateOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.group("Measurement");
  table.add("seq-len", "N", "tokens of one sequence", options.sequence_length);
  add_rate_options(table, options.threads, options.dtype);
  table.add("seconds", "X", "to spend on work inside a rank, or as long as four rounds of each take",
            options.seconds);
  return table;
}

OptionTable table_of(PlanOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.group("Cluster");
  table.add("ranks", "N", "of the job; every dp x ep of them is planned", options.ranks);
  table.add("ranks-per-node", "N", "0: all on one", options.ranks_per_node);
  table.add("processors", "N", "of a node; 0: as this one has", options.processors);
  table.add(
      "memory", "BYTES",
      "of a node, whose ranks share it as ceilings (--memory of train); 0: as this one has",
      [&options](const std::string& text) { options.memory_bytes = read_bytes(text); },
      [&options] { return exact_bytes_text(options.memory_bytes); });
  table.add(
      "net", "BANDWIDTH,LATENCY", "between nodes: 200Gbit,2us; without it what `moeloom calibrate` measured",
      [&options](const std::string& text) { options.network = read_network(text); },
      [&options] { return network_text(options.network); });
  table.group("Work");
  table.add("tokens-per-rank", "N", "of a step", options.tokens_per_rank);
  table.add("seq-len", "N", "tokens of one sequence", options.sequence_length);
  table.add("accumulate", "N", "micro-batches that one step is cut into", options.accumulate);
  table.add("expert-load", "X", "rows of the fullest expert over the mean, as metrics.jsonl has it; 1: even",
            options.expert_load);
  table.add("routing", "trace:FILE",
            "instead: rows of each expert as --record-routing recorded them; @LAYER: of one",
            options.routing);
  add_rate_options(table, options.threads, options.dtype);
  table.add(
      "gmm-budget", "BYTES", "as of train: the most that packed experts of a layer may take",
      [&options](const std::string& text) { options.gmm_budget_bytes = read_bytes(text); },
      [&options] { return exact_bytes_text(options.gmm_budget_bytes); });
  add_lora_option(table, options.lora);
  add_format_options(table, options.keeping);
  add_memory_options(table, options.keeping);
  table.add_choice("overlap",
                   "whether rows, sums of gradients and new weights travel under products; auto: where train "
                   "lets them, off: nowhere",
                   options.overlap, {{"auto", true}, {"off", false}});
  table.add("calibrate", "BOOL", "measure this machine anew, whatever the user's cache holds",
            options.calibrate);
  table.group("Output");
  table.add("rows", "N", "of the table, the fastest first; 0: all", options.rows);
  table.add("data", "FILE", "what the recommended line trains on", options.data);
  table.add("json", "FILE", "also write every row there", options.json);
  return table;
}

/// The command line into the options that `table` names, and what is wrong with it so far.
Violations read(const OptionTable& table, int argc, const char* const* argv, ModelOptions& model) {
  Mistakes mistakes;
  note_shape(read_command_line(table, argc, argv, mistakes), model);
  check_shape_source(model, mistakes.violations);
  return mistakes.violations;
}

/// Sequences of a rank are whole, in every micro-batch.
void check_tokens(const PlanOptions& o, Violations& violations) {
  if (o.sequence_length < 1 || o.accumulate < 1 || o.tokens_per_rank < 1) return;
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

}  // namespace

CalibrateOptions parse_calibrate_options(int argc, const char* const* argv) {
  CalibrateOptions options;
  Violations violations = read(table_of(options), argc, argv, options.model);
  violations.unless_at_least(1, "seq-len", options.sequence_length);
  violations.unless_positive("seconds", options.seconds);
  check_threads(options.threads, violations);
  violations.throw_if_any();
  return options;
}

PlanOptions parse_plan_options(int argc, const char* const* argv) {
  PlanOptions options;
  Violations violations = read(table_of(options), argc, argv, options.model);
  violations.unless_at_least(1, "ranks", options.ranks);
  violations.unless_at_least(0, "ranks-per-node", options.ranks_per_node);
  violations.unless_at_least(0, "processors", options.processors);
  violations.unless_at_least(1, "tokens-per-rank", options.tokens_per_rank);
  violations.unless_at_least(1, "seq-len", options.sequence_length);
  violations.unless_at_least(1, "accumulate", options.accumulate);
  violations.unless(options.expert_load >= 1, "expert-load = " + number_text(options.expert_load) +
                                                  " is below 1, the mean of all experts; choose 1 or more");
  violations.unless(options.routing.empty() || options.routing.starts_with(RecordedWorkload::kPrefix),
                    "--routing " + options.routing + " is no trace:FILE, which a recording is named by");
  violations.unless(options.routing.empty() || options.expert_load == 1,
                    "--routing and --expert-load are two answers to how rows lie; remove one");
  violations.unless_at_least(0, "rows", options.rows);
  check_threads(options.threads, violations);
  check_tokens(options, violations);
  check_ranks(options, violations);
  violations.throw_if_any();
  if (options.ranks_per_node == 0) options.ranks_per_node = options.ranks;
  return options;
}

std::string calibrate_help() {
  CalibrateOptions options;
  return "moeloom calibrate: how fast this machine does each kind of work, kept for `moeloom plan`\n\n"
         "  mpirun -n 2 moeloom calibrate --model DIR\n" +
         table_of(options).help();
}

std::string plan_help() {
  PlanOptions options;
  return "moeloom plan: which mesh, dispatcher and kernels to run, predicted\n\n"
         "  moeloom plan --model DIR --ranks 1024 --ranks-per-node 64 --net 200Gbit,2us\n" +
         table_of(options).help();
}

}  // namespace moeloom
