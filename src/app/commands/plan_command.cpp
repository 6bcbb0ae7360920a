#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "measure/recorded_workload.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "plan/rates/calibration.hpp"
#include "plan/rates/gmm_prediction.hpp"
#include "plan/rates/rate_cache.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/environment.hpp"
#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/rows/flag_words.hpp"
#include "commands/commands.hpp"
#include "commands/plan_words.hpp"
#include "commands/rate_source.hpp"
#include "fields/job_words.hpp"
#include "fields/network_text.hpp"
#include "open/memory_ceiling.hpp"
#include "open/run_decision.hpp"

namespace moeloom {
namespace {

constexpr double kMachineSeconds = 2;  // for what the cache does not hold

/// Rows of each expert, the same in every layer; none where they are even.
std::vector<std::vector<double>> expert_rows(double load, const ModelConfig& config) {
  if (load == 1 || !config.has_experts()) return {};
  const auto experts = static_cast<double>(config.num_experts);
  const auto chosen = static_cast<double>(config.num_experts_per_tok);
  if (load > experts / chosen)
    throw ConfigError({"expert-load = " + number_text(load) +
                       " is more than experts / top-k = " + number_text(experts) + " / " +
                       number_text(chosen) + ", where every token has chosen that expert; choose " +
                       number_text(experts / chosen) + " or less"});
  return {rows_with_fullest(config.num_experts, load)};
}

/// The same as they were recorded, a list for each sparse layer of each step.
std::vector<std::vector<double>> recorded_rows(const std::string& routing, const ModelConfig& config) {
  const RecordedWorkload recorded(routing);
  if (const auto reason = recorded.why_not({0, config.num_experts, config.num_experts_per_tok}))
    throw ConfigError({*reason});
  std::vector<std::vector<double>> rows;
  for (const std::vector<Index>& each : recorded.expert_rows()) rows.emplace_back(each.begin(), each.end());
  return rows;
}

/// What a node has for the model: ranks hold the program and MPI beside it.
double model_bytes_of_node(const PlanOptions& o) {
  const auto all = static_cast<double>(o.memory_bytes > 0 ? o.memory_bytes : memory_of_this_node());
  const auto ranks = static_cast<double>(std::min(o.ranks_per_node, o.ranks));
  return std::max(all - kProgramBytes * ranks, 0.0);
}

PlannedJob planned_of(const PlanOptions& o, const ModelConfig& config, const RunFlags& flags) {
  const Index processors = o.processors > 0 ? o.processors : processors_here();
  const Index threads =
      o.threads > 0 ? o.threads : flags.threads.value_or(std::max<Index>(processors / o.ranks_per_node, 1));
  return {.config = config,
          .job = {.batch = {.sequences = o.ranks * (o.tokens_per_rank / o.sequence_length),
                            .length = o.sequence_length,
                            .micro_batches = o.accumulate},
                  .keeping = o.keeping,
                  .exchange = {.expert_rows = o.routing.empty() ? expert_rows(o.expert_load, config)
                                                                : recorded_rows(o.routing, config)},
                  .layout = {.mesh = {.dp = o.ranks},
                             .ranks_per_node = o.ranks_per_node,
                             .processors_per_node = processors,
                             .threads = threads}},
          .memory_per_node = model_bytes_of_node(o),
          .gmm_budget_bytes = o.gmm_budget_bytes,
          .dtype = o.dtype,
          .overlap = o.overlap};
}

/// The rates of ranks that share a node as the job's will, from the cache; else of this process alone.
MachineRates machine_rates(const PlannedJob& planned, const PlanOptions& options,
                           const std::filesystem::path& file) {
  const RateCase sizes = rate_case(planned.config, planned.job.batch.length);
  const std::string machine = rate_machine(planned.dtype);
  if (!options.calibrate) {
    const MachineAnswer kept = kept_machine_rates(file, machine, sizes, busy_node_ranks(planned));
    if (!kept.warning.empty()) std::printf("warning: %s\n", kept.warning.c_str());
    if (kept.rates) return *kept.rates;
  }
  const MachineRates rates =
      measure_machine_rates(sizes, usual_kernels(planned.config, kSumChunkRows, planned.dtype),
                            Communicator::self(), kMachineSeconds);
  const std::string warning = keep_machine_rates(file, machine, sizes, rates);
  if (!warning.empty()) std::printf("warning: %s\n", warning.c_str());
  return rates;
}

/// The network as it was given, or as it was measured.
void choose_network(const PlannedJob& planned, const PlanOptions& options, MachineRates& machine) {
  if (options.network.bytes_per_second > 0) use_network(machine, options.network);
  if (options.ranks <= options.ranks_per_node || machine.measured_network()) return;
  throw ConfigError({std::to_string(options.ranks) + " ranks, " + std::to_string(options.ranks_per_node) +
                     " a node, lie on " + std::to_string(options.ranks / options.ranks_per_node) +
                     " nodes and nothing is known of the network between them; give --net 200Gbit,2us, or "
                     "measure it on two of them by `" +
                     calibrate_line(calibration_of(planned, options), busy_node_ranks(planned), 2) + "`"});
}

PredictExperts predictor(const PlanOptions& options, const ModelConfig& config,
                         const std::filesystem::path& file) {
  return [&options, &config, file](const GmmFacts& facts, const MeshShape& mesh) {
    const auto say = [&] {
      std::fprintf(stderr, "measuring the experts' products for ep = %lld\n",
                   static_cast<long long>(mesh.ep));
    };
    return find_prediction(gmm_case(config, facts), facts.uses_per_packing,
                           {file, options.calibrate, options.dtype, say});
  };
}

/// What `train` would do at the mesh of a point: by the network that was given, and no measurement.
RunDecision decision_at(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point,
                        const AskedExchange& asked) {
  Job job = job_at(planned, point.job.layout.mesh.ep);
  job.layout.processors_per_node =
      job.layout.ranks_per_node * job.layout.threads;  // as find_run_facts() has it
  RunFacts facts = facts_at(planned, job);
  if (options.network.bytes_per_second > 0) use_network(facts, options.network);
  facts.program_bytes = kProgramBytes;
  RunRequest request = request_of(planned);
  request.exchange = asked;
  request.memory_ceiling = memory_of_a_rank(options);
  return decide(facts, request);
}

/// The same unasked.
RunDecision decision_at(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point) {
  return decision_at(options, planned, point, request_of(planned).exchange);
}

/// By what --rebalance would decide there, and what that gains; empty where it has nothing to move.
std::string rebalance_at(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point) {
  if (point.job.layout.mesh.ep == 1) return {};
  AskedExchange asked = request_of(planned).exchange;
  asked.rebalance = true;
  const RunDecision on = decision_at(options, planned, point, asked);
  return with_flags(on.why.rebalance) + "; " + gain_text(planned.config, on.job, on.rates.value());
}

std::string line_of(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point) {
  AskedExchange asked = request_of(planned).exchange;
  if (point.job.layout.mesh.ep > 1) asked.dispatcher = point.job.exchange.dispatcher;  // as the line says
  return run_line(options, point, decision_at(options, planned, point, asked).gmm);
}

std::string milliseconds(double seconds) {
  return rounded_text(1e3 * seconds);
}

double sum_of(const PhaseSeconds& seconds, std::initializer_list<Phase> phases) {
  double sum = 0;
  for (const Phase phase : phases) sum += seconds[static_cast<std::size_t>(phase)];
  return sum;
}

void print_row(const PredictedPoint& p) {
  const auto ms = [&](std::initializer_list<Phase> phases) {
    return milliseconds(sum_of(p.seconds, phases));
  };
  std::printf("%4lld %4lld  %-13s %-11s %9s %10s %8s %8s %8s %8s %8s %8s %10s %10s  %s%s\n",
              static_cast<long long>(p.job.layout.mesh.dp), static_cast<long long>(p.job.layout.mesh.ep),
              dispatcher_text(p).c_str(), gmm_text(p).c_str(), milliseconds(p.step_seconds()).c_str(),
              rounded_text(p.tokens_per_second()).c_str(),
              ms({Phase::kAttention, Phase::kDense, Phase::kRouter, Phase::kEmbed, Phase::kOther}).c_str(),
              ms({Phase::kExperts}).c_str(), ms({Phase::kPlan, Phase::kDispatch, Phase::kCombine}).c_str(),
              ms({Phase::kLoss}).c_str(), ms({Phase::kReduce, Phase::kReport}).c_str(),
              ms({Phase::kOptimizer}).c_str(), bytes_text(p.memory.total()).c_str(),
              bytes_text(p.message_bytes).c_str(), p.bottleneck.c_str(), p.fits ? "" : "; does not fit");
}

void print_table(const std::vector<PredictedPoint>& points, Index rows) {
  std::printf("%4s %4s  %-13s %-11s %9s %10s %8s %8s %8s %8s %8s %8s %10s %10s  %s\n", "dp", "ep",
              "dispatcher", "experts as", "step ms", "tokens/s", "dense", "experts", "exchange", "loss",
              "reduce", "optim", "memory", "messages", "bottleneck");
  const Index shown = rows == 0 ? std::ssize(points) : std::min(rows, static_cast<Index>(std::ssize(points)));
  for (Index i = 0; i < shown; ++i) print_row(points[at(i)]);
  if (shown < std::ssize(points))
    std::printf("%lld more, slower; --rows 0 shows all\n",
                static_cast<long long>(std::ssize(points) - shown));
}

Document document_of(const PredictedPoint& p) {
  Document row, phases, memory;
  for (std::size_t i = 0; i < kPhases; ++i)
    phases.set(std::string(name_of(static_cast<Phase>(i))), p.seconds[i]);
  memory.set("dense_weights", p.memory.dense_weights);
  memory.set("dense_gradients", p.memory.dense_gradients);
  memory.set("expert_weights", p.memory.expert_weights);
  memory.set("expert_gradients", p.memory.expert_gradients);
  memory.set("moments", p.memory.moments);
  memory.set("packed", p.memory.packed);
  memory.set("activations", p.memory.activations);
  memory.set("buffers", p.memory.buffers);
  memory.set("total", p.memory.total());
  row.set("dp", p.job.layout.mesh.dp);
  row.set("ep", p.job.layout.mesh.ep);
  row.set("dispatcher", std::string(name_of(p.job.exchange.dispatcher)));
  row.set("chunks", p.job.exchange.chunks);
  row.set("overlap_grad_reduce", p.job.exchange.overlap_reduce);
  row.set("overlap_param_gather", p.job.exchange.overlap_gather);
  row.set("experts", gmm_text(p));
  row.set("step_seconds", p.step_seconds());
  row.set("tokens_per_s", p.tokens_per_second());
  row.set("phases", phases);
  row.set("memory", memory);
  row.set("message_bytes", p.message_bytes);
  row.set("fits", p.fits);
  row.set("bottleneck", p.bottleneck);
  return row;
}

Document document_of(const RunDecision& decision) {
  Document row;
  for (const auto& [name, text] : facts_of(decision)) row.set(name, with_flag_names(text));
  row.set("experts", (decision.gmm.apply ? "grouped: " : "loop: ") + decision.gmm.reason);
  row.set("memory", decision.memory.total());
  if (decision.row_budget.room) {
    row.set("row_budget", decision.row_budget.rows);
    row.set("row_budget_reason", with_flag_names(decision.row_budget.reason));
  }
  return row;
}

void write_json(const PlanOptions& options, const PlannedJob& planned,
                const std::vector<PredictedPoint>& points, const std::vector<std::string>& notes,
                const std::optional<FittingJob>& fit) {
  if (options.json.empty()) return;
  Document document;
  document.set("ranks", planned.ranks());
  document.set("ranks_per_node", planned.job.layout.ranks_per_node);
  document.set("processors_per_node", planned.job.layout.processors_per_node);
  document.set("threads", planned.job.layout.threads);
  document.set("tokens_per_rank", options.tokens_per_rank);
  document.set("sequence_length", planned.job.batch.length);
  document.set("accumulate", planned.job.batch.micro_batches);
  document.set("expert_load", options.expert_load);
  document.set("routing", options.routing);
  document.set("network", network_text(options.network));
  document.set("notes", notes);
  std::vector<Document> rows;
  for (const PredictedPoint& point : points) rows.push_back(document_of(point));
  document.set("points", rows);
  if (points.front().fits) {
    Document decision = document_of(decision_at(options, planned, points.front()));
    decision.set("rebalance", rebalance_at(options, planned, points.front()));
    document.set("decision", decision);
  }
  document.set("recommended",
               points.front().fits ? line_of(options, planned, points.front()) : std::string());
  document.set("fits_with",
               fit ? with_flag_names(changed_plan_options(planned.job, fit->job)) : std::string());
  document.write(options.json);
}

void print_recommended(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point) {
  const RunDecision train = decision_at(options, planned, point);
  std::printf("\nrecommended\n  %s\n", line_of(options, planned, point).c_str());
  std::printf("unasked, train does at this mesh\n");
  for (const auto& [name, text] : facts_of(train))
    std::printf("  %-10s  %s\n", name.c_str(), with_flags(text).c_str());
  std::printf("  %-10s  %s: %s\n", "experts", train.gmm.apply ? "grouped" : "loop",
              with_flags(train.gmm.reason).c_str());
  std::printf("  %-10s  %s a rank, %s of it program and MPI\n", "memory",
              bytes_text(train.memory.total()).c_str(), bytes_text(train.memory.program).c_str());
  const double copy = save_copy_bytes(parameters_at(planned, point.job.layout.mesh.ep), point.job);
  std::printf("  %-10s  and %s a rank for the copy of --async-save, where that fits\n", "",
              bytes_text(copy).c_str());
  if (train.row_budget.room)
    std::printf("  %-10s  %s\n", "rows", with_flags(train.row_budget.reason).c_str());
  if (const std::string text = rebalance_at(options, planned, point); !text.empty())
    std::printf("  %-10s  %s\n", "uneven", text.c_str());
}

/// What a ceiling of train makes of a job whose even rows do not fit.
void print_slices(const PlanOptions& options, const PlannedJob& planned, const PredictedPoint& point) {
  if (options.memory_bytes == 0) return;
  const RowBudgetDecision budget = decision_at(options, planned, point).row_budget;
  // No room: of a ceiling that leaves a rank less than a byte.
  if (budget.room && budget.room->fits() && budget.rows > 0)
    std::printf("or as it is, in slices, slower: %s\n", with_flags(budget.reason).c_str());
}

void print_advice(const PlanOptions& options, const PlannedJob& planned, const MachineRates& machine,
                  const std::vector<PredictedPoint>& points, const std::optional<FittingJob>& fit) {
  if (points.front().fits) return print_recommended(options, planned, points.front());
  const PredictedPoint& smallest = smallest_point(points);
  PlannedJob laid = planned;
  laid.job = smallest.job;
  std::printf("\n%s%s", memory_advice(planned, smallest, fit).c_str(),
              with_flag_names(memory_changes_text(laid, machine)).c_str());
  print_slices(options, planned, smallest);
}

}  // namespace

int plan_command(int argc, char** argv) {
  const PlanOptions options = parse_plan_options(argc, argv);
  const RunFlags flags = read_environment();
  const ModelConfig config = checked_config(options.model, options.lora);
  require_dtype(options.dtype, flags);
  PlannedJob planned = planned_of(options, config, flags);
  require_use_of_offload(options.keeping.offload, parameters_at(planned, 1));
  set_threads(static_cast<int>(planned.job.layout.threads));
  const std::filesystem::path file = rate_cache_file(flags.cache_folder);
  MachineRates machine = machine_rates(planned, options, file);
  choose_network(planned, options, machine);
  planned.job.layout.tcp = machine.network_tcp;
  const std::vector<PredictedPoint> points =
      predict_points(planned, machine, predictor(options, config, file));
  const std::vector<std::string> notes = extrapolations(planned, machine, options);
  print_table(points, options.rows);
  for (const std::string& note : notes) std::printf("note: %s\n", note.c_str());
  const auto fit = points.front().fits ? std::nullopt : cheapest_fit(planned);
  print_advice(options, planned, machine, points, fit);
  write_json(options, planned, points, notes, fit);
  return 0;
}

}  // namespace moeloom
