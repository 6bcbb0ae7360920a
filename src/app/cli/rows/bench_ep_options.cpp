#include "cli/rows/bench_ep_options.hpp"

#include "plan/decide/compute_dtype.hpp"
#include "plan/decide/decide.hpp"

#include <algorithm>

#include "cli/command_line.hpp"
#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

/// Words with commas, each once; "all" where `all` holds.
template <typename T>
std::vector<T> read_words(const std::string& text, const std::vector<std::pair<std::string, T>>& known,
                          bool all) {
  std::vector<std::string> words;
  for (const auto& [word, value] : known) words.push_back(word);
  std::vector<T> values;
  for (const std::string& word : split(text, ',')) {
    if (all && word == "all") {
      for (const auto& [each, value] : known) values.push_back(value);
      continue;
    }
    const auto found = std::ranges::find(words, word);
    if (found == words.end())
      throw BadValue("\"" + word + "\" is none of: " + joined(words) + (all ? ", all" : ""));
    values.push_back(known[static_cast<std::size_t>(found - words.begin())].second);
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Several of a few words, in the order of `values`.
template <typename T, typename Name>
void add_words(OptionTable& table, const std::string& name, const std::string& help, const std::string& why,
               std::vector<T>& field, const std::vector<T>& values, Name name_of_value) {
  std::vector<std::pair<std::string, T>> known;
  std::vector<std::string> words;
  for (const T value : values) {
    words.emplace_back(name_of_value(value));
    known.emplace_back(words.back(), value);
  }
  table.add(
      name, "LIST", help + ": " + joined(words), why, field,
      [known](const std::string& text) { return read_words(text, known, /*all=*/false); },
      [name_of_value](const std::vector<T>& chosen) {
        std::vector<std::string> given;
        for (const T value : chosen) given.emplace_back(name_of_value(value));
        return joined(given, ",");
      });
}

/// Made-up ones in the order of their table, each once, then recorded ones as they were named.
std::vector<Workload> read_workloads(const std::string& text) {
  std::vector<std::pair<std::string, SyntheticWorkload>> known;
  for (const SyntheticWorkload workload : kWorkloads) known.emplace_back(name_of(workload), workload);
  std::string made_up;
  std::vector<Workload> recorded;
  for (const std::string& word : split(text, ',')) {
    if (!word.starts_with(RecordedWorkload::kPrefix)) {
      made_up += (made_up.empty() ? "" : ",") + word;
      continue;
    }
    try {
      recorded.push_back(workload_named(word));
    } catch (const std::exception& error) {  // the file's, or no such layer
      throw BadValue(error.what());
    }
  }
  std::vector<Workload> workloads;
  if (!made_up.empty() || recorded.empty())
    for (const SyntheticWorkload workload : read_words(made_up, known, /*all=*/true))
      workloads.emplace_back(workload);
  workloads.insert(workloads.end(), recorded.begin(), recorded.end());
  return workloads;
}

std::string workloads_text(const std::vector<Workload>& workloads) {
  std::vector<std::string> words;
  for (const Workload& workload : workloads) words.emplace_back(name_of(workload));
  return joined(words, ",");
}

std::vector<Index> read_eps(const std::string& text) {
  if (text == "auto") return {};
  auto eps = value_from<std::vector<Index>>(text);
  if (eps.empty()) throw BadValue("expected auto, or numbers with commas");
  std::ranges::sort(eps);
  eps.erase(std::unique(eps.begin(), eps.end()), eps.end());
  return eps;
}

std::string eps_text(const std::vector<Index>& eps) {
  return eps.empty() ? "auto" : value_text(eps);
}

void add_point_options(OptionTable& table, SweepSettings& s) {
  const auto name = [](auto value) { return name_of(value); };
  table.group("Points, every combination of them");
  add_words(table, "mode", "the MoE layer forward and backward, the whole training step",
            "a layer shows what ep costs, a step what it is worth", s.modes,
            {BenchMode::kLayer, BenchMode::kStep}, name);
  add_words(table, "scaling", "the same tokens over all ranks, or on each", "papers have either", s.scalings,
            {Scaling::kStrong, Scaling::kWeak}, name);
  table.add("ep", "LIST", "ranks that share the experts; auto: every divisor of the ranks up to the experts",
            "the question", s.eps, read_eps, eps_text);
  add_words(table, "gmm", "grouped matmul, asked for as by MOELOOM_GMM_PATCH",
            "one product of many experts against a loop, at every ep", s.gmm,
            {GmmRequest::kNever, GmmRequest::kUpstreamRule, GmmRequest::kAuto, GmmRequest::kForce}, name);
  add_words(table, "dispatcher", "how rows travel between the ranks of ep", "as of train", s.dispatchers,
            dispatcher_requests(), name);
  add_words(table, "dtype", "what products multiply; the loop is fp32 alone", "as of train", s.dtypes,
            {DType::kF32, DType::kBF16}, dtype_text);
  std::vector<std::string> workloads;
  for (const SyntheticWorkload workload : kWorkloads) workloads.emplace_back(name_of(workload));
  table.add(
      "workloads", "LIST",
      "routings of the layer: " + joined(workloads) +
          "; or all of these; trace:FILE or trace:FILE@LAYER: what --record-routing recorded, and of the "
          "training step too, which else routes by itself",
      "what uneven load costs", s.workloads, read_workloads, workloads_text);
  table.add("tokens", "N", "strong scaling: tokens over all ranks", "as of train", s.tokens).at_least(1);
  table.add("tokens-per-rank", "N", "weak scaling: tokens of a rank", "as of plan", s.tokens_per_rank)
      .at_least(1);
  table.add("seq-len", "N", "training step: tokens of a sequence", "as of train", s.sequence_length)
      .at_least(1);
}

void add_run_options(OptionTable& table, BenchEpOptions& o) {
  table.group("Measuring");
  table.add("rebalance", "BOOL", "where ep > 1: experts get replicas on other ranks where that pays",
            "as of train", o.sweep.rebalance);
  table
      .add("warmup", "N", "steps of each point before the first sample", "first steps touch new memory",
           o.sweep.warmup)
      .at_least(0);
  table
      .add("samples", "N", "measured steps of each point, the points of a comparison in turn",
           "noise of a shared machine", o.sweep.samples)
      .at_least(1);
  table.add("seed", "N", "of weights, tokens and routings", "the same points again", o.sweep.seed);
  add_threads_option(table, o.threads);
  table.group("Results");
  table
      .add("out", "DIR", "folder of points.jsonl, points.csv and report.html; what it holds is not repeated",
           "worlds of several sizes make one report", o.out)
      .needed();
  table.add("commit", "TEXT", "what was built; another one is measured anew (launch/bench-ep.sh says it)",
            "numbers of two builds are no comparison of ep", o.sweep.commit);
}

OptionTable table_of(BenchEpOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  add_point_options(table, options.sweep);
  add_run_options(table, options);
  return table;
}

template <typename T>
bool has(const std::vector<T>& values, T value) {
  return std::ranges::find(values, value) != values.end();
}

void check_step(const SweepSettings& s, const ModelConfig& config, Index world, Violations& violations) {
  violations.add(config_violations(config));
  violations.unless(config.vocab_size >= 256, "vocab = " + value_text(config.vocab_size) +
                                                  " is below 256, and training steps read random bytes; set "
                                                  "--vocab 256, or leave --mode step out");
  violations.unless(s.sequence_length <= config.max_position_embeddings,
                    "seq-len = " + value_text(s.sequence_length) + " is above max_position_embeddings = " +
                        value_text(config.max_position_embeddings) + "; choose a shorter one");
  const auto whole = [&](const char* name, Index tokens, Index ranks) {
    const Index shares = s.sequence_length * ranks;
    violations.unless(
        tokens % shares == 0,
        std::string(name) + " = " + value_text(tokens) + " is no multiple of " + value_text(ranks) +
            " ranks x seq-len " + value_text(s.sequence_length) + " = " + value_text(shares) + "; choose " +
            value_text(std::max<Index>(tokens / shares, 1) * shares) + ", or another --seq-len");
  };
  if (has(s.scalings, Scaling::kStrong)) whole("tokens", s.tokens, world);
  if (has(s.scalings, Scaling::kWeak)) whole("tokens-per-rank", s.tokens_per_rank, 1);
}

void check_layer(const ModelConfig& config, Violations& violations) {
  violations.unless(config.hidden_size >= config.num_experts,
                    "hidden = " + value_text(config.hidden_size) +
                        " is below experts = " + value_text(config.num_experts) +
                        ", and a layer's routing is given in the first value a token has for each expert; "
                        "choose --hidden of at least " +
                        value_text(config.num_experts) + ", or leave --mode layer out");
}

/// A layer takes every routing, a training step those that were recorded.
void check_workloads(const SweepSettings& s, const ModelConfig& config, Violations& violations) {
  const WorkloadShape shape{s.tokens, config.num_experts, config.num_experts_per_tok};
  for (const Workload& workload : s.workloads) {
    if (!workload.recorded() && !has(s.modes, BenchMode::kLayer)) {
      violations.unless(s.workloads == SweepSettings{}.workloads,
                        "--workloads " + std::string(name_of(workload)) +
                            " routes layers alone, and --mode has none; a training step takes trace:FILE");
      continue;
    }
    if (const auto reason = why_not(workload, shape)) violations.unless(false, *reason);
  }
}

}  // namespace

BenchEpOptions parse_bench_ep_options(int argc, const char* const* argv) {
  BenchEpOptions options;
  Violations of_values;  // told with what the model and the ranks say against them
  note_shape(read_command_line(table_of(options), argc, argv, of_values), options.model);
  return options;
}

Help bench_ep_help() {
  BenchEpOptions options;
  return "moeloom bench ep: which ep, on how many ranks, at what cost\n\n"
         "  mpirun -n 4 moeloom bench ep --out bench-ep       every ep of a world of 4 ranks\n"
         "  launch/bench-ep.sh --ranks 1,2,4                  several worlds, one report\n\n"
         "Each point is checked against ep = 1 before it is timed; a step's time is that of its slowest "
         "rank.\n"
         "Stopped in the middle, the same command goes on with the points that are missing.\n" +
         help_of(table_of(options));
}

std::vector<std::string> bench_ep_violations(const BenchEpOptions& o, const ModelConfig& config,
                                             Index world) {
  const SweepSettings& s = o.sweep;
  Violations violations;
  check_shape_source(o.model, violations);
  BenchEpOptions copy = o;
  table_of(copy).check(violations);
  violations.unless(config.has_experts(),
                    "the model has no experts, so there is no ep to compare; set --experts");
  violations.unless(s.gmm != std::vector{GmmRequest::kNever} || has(s.dtypes, DType::kF32),
                    "--gmm 0 with --dtype bf16 leaves no point: the loop over experts is fp32 alone");
  for (const Index ep : s.eps) violations.add(mesh_violations({0, ep}, world, config.num_experts));
  if (!violations.list().empty()) return violations.list();
  if (has(s.modes, BenchMode::kStep)) check_step(s, config, world, violations);
  if (has(s.modes, BenchMode::kLayer)) check_layer(config, violations);
  check_workloads(s, config, violations);
  return violations.list();
}

std::vector<std::string> decisive_environment(const RunFlags& flags) {
  std::vector<std::string> variables = flags.given;
  std::erase_if(variables, [](const std::string& variable) {
    return variable.starts_with("MOELOOM_LOG") || variable.find("GMM_PATCH") != std::string::npos;
  });
  return variables;
}

}  // namespace moeloom
