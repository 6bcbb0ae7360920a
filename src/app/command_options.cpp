#include "moeloom/app/options.hpp"

#include "option_groups.hpp"
#include "processors.hpp"

namespace moeloom {
namespace {

OptionTable table_of(GenerateOptions& options) {
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", options.model);
  table.add("prompt", "TEXT", "what the text begins with", options.prompt);
  table.add("tokens", "N", "tokens to add", options.tokens);
  table.add("temperature", "X", "0: always the likeliest token", options.temperature);
  table.add("top-k", "N", "draw from so many of the likeliest; 0: from all", options.top_k);
  table.add("seed", "N", "of the draws", options.seed);
  table.add("ep", "N", "ranks that share the experts of a layer", options.ep);
  table.add("threads", "N", "threads of a rank; 0: OMP_NUM_THREADS, or else its share of the node's processors",
            options.threads);
  table.positional("model");
  return table;
}

OptionTable table_of(InspectOptions& options) {
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", options.model);
  table.add("ranks", "N", "show what each of so many ranks would hold", options.ranks);
  table.add("ep", "N", "ranks that share the experts of a layer", options.ep);
  table.positional("model");
  return table;
}

OptionTable table_of(KernelsOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.group("Mesh and kernels");
  table.add("ranks", "N", "decide for so many ranks; 0: those that run the command", options.ranks);
  table.add("ep", "N", "ranks that share the experts of a layer", options.ep);
  add_kernel_options(table, options.kernels);
  table.group("Batch");
  add_batch_options(table, options.sequence_length, options.global_batch, options.accumulate);
  return table;
}

template <typename Options>
Options parsed(int argc, const char* const* argv) {
  Options options;
  options.help = help_requested(argc, argv);
  if (!options.help) read_command_line(table_of(options), argc, argv);
  return options;
}

template <typename Options>
std::string help_of(const std::string& usage) {
  Options options;
  return usage + table_of(options).help();
}

/// Throws ConfigError unless a model is named and numbers are in range.
void require_usable(std::vector<std::string> violations, const std::filesystem::path& model) {
  if (model.empty()) violations.insert(violations.begin(), "--model DIR is needed");
  if (!violations.empty()) throw ConfigError(violations);
}

void collect(std::vector<std::string>& violations, const std::vector<std::string>& more) {
  violations.insert(violations.end(), more.begin(), more.end());
}

void unless_at_least(Index least, const std::string& name, Index value,
                     std::vector<std::string>& violations) {
  if (value >= least) return;
  violations.push_back(name + " = " + std::to_string(value) + " must be at least " + std::to_string(least));
}

}  // namespace

GenerateOptions parse_generate_options(int argc, const char* const* argv) {
  const auto options = parsed<GenerateOptions>(argc, argv);
  if (options.help) return options;
  std::vector<std::string> violations;
  unless_at_least(0, "tokens", options.tokens, violations);
  unless_at_least(0, "top-k", options.top_k, violations);
  unless_at_least(1, "ep", options.ep, violations);
  collect(violations, thread_violations(options.threads));
  if (options.temperature < 0)
    violations.push_back("temperature = " + value_text(options.temperature) + " must not be negative");
  if (options.prompt.empty()) violations.push_back("--prompt must hold at least one character");
  require_usable(violations, options.model);
  return options;
}

InspectOptions parse_inspect_options(int argc, const char* const* argv) {
  const auto options = parsed<InspectOptions>(argc, argv);
  if (options.help) return options;
  std::vector<std::string> violations;
  unless_at_least(1, "ranks", options.ranks, violations);
  unless_at_least(1, "ep", options.ep, violations);
  require_usable(violations, options.model);
  return options;
}

KernelsOptions parse_kernels_options(int argc, const char* const* argv) {
  KernelsOptions options;
  options.help = help_requested(argc, argv);
  if (options.help) return options;
  const OptionTable table = table_of(options);
  std::vector<std::string> violations;
  const Layer layer = table.command_line(argc, argv, violations);
  table.set(layer, violations);
  note_shape(layer, options.model);
  if (!options.model.folder.empty() && !options.model.shape_given.empty())
    violations.push_back("--model takes the shape from its config.json; remove --" +
                         joined(options.model.shape_given, ", --"));
  unless_at_least(0, "ranks", options.ranks, violations);
  unless_at_least(1, "ep", options.ep, violations);
  collect(violations, thread_violations(options.kernels.threads));
  unless_at_least(1, "seq-len", options.sequence_length, violations);
  unless_at_least(1, "global-batch", options.global_batch, violations);
  unless_at_least(1, "accumulate", options.accumulate, violations);
  if (!violations.empty()) throw ConfigError(violations);
  return options;
}

std::string generate_help() {
  return help_of<GenerateOptions>(
      "moeloom generate: text from a model\n\n"
      "  moeloom generate --model runs/latest --prompt \"In the beginning\"\n");
}

std::string inspect_help() {
  return help_of<InspectOptions>(
      "moeloom inspect: what a model or a checkpoint holds\n\n  moeloom inspect runs/latest --ranks 4 --ep "
      "2\n");
}

std::string kernels_help() {
  return help_of<KernelsOptions>(
      "moeloom kernels: the kernels, what each replaces, and the decision for a model and mesh\n\n"
      "  moeloom kernels --model DIR --ranks 4 --ep 2\n");
}

}  // namespace moeloom
