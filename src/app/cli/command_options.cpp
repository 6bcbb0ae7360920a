#include <algorithm>
#include <sstream>

#include "cli/option_groups.hpp"
#include "cli/options.hpp"
#include "cli/processors.hpp"

namespace moeloom {
namespace {

void add_ask_options(OptionTable& table, AskOptions& options) {
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", options.model);
  table.add("adapter", "DIR", "an adapter of PEFT or of train --lora that is added to the model",
            options.adapter);
  add_ignore_option(table, options.ignored_keys);
  table.add("ep", "N", "ranks that share the experts of a layer", options.ep);
  table.add("threads", "N",
            "threads of a rank; 0: OMP_NUM_THREADS, or else its share of the node's processors",
            options.threads);
  table.positional("model");
}

constexpr char kBetweenStops = '\x1E';  // of the command line, where no text has it

void add_sampling_options(OptionTable& table, SamplingSettings& sampling, std::vector<std::string>& stop) {
  table.add("temperature", "X", "0: always the likeliest token", sampling.temperature);
  table.add("top-k", "N", "draw from so many of the likeliest; 0: from all", sampling.top_k);
  table.add("top-p", "X", "draw from the fewest likeliest that have this probability together",
            sampling.top_p);
  table.add("min-p", "X", "draw from those at least so likely as this share of the likeliest",
            sampling.min_p);
  table.add("repetition-penalty", "X", "above 1: tokens of the text become less likely",
            sampling.repetition_penalty);
  table.add("seed", "N", "of the draws", sampling.seed);
  table.add(
      "stop", "TEXT", "ends the text before this one; may be given several times",
      [&stop](const std::string& texts) {
        std::istringstream parts(texts);
        for (std::string part; std::getline(parts, part, kBetweenStops);)
          if (!part.empty()) stop.push_back(part);
      },
      [&stop] { return joined(stop, std::string(1, kBetweenStops)); });
  table.repeat(kBetweenStops);
}

OptionTable table_of(GenerateOptions& options) {
  OptionTable table;
  table.group("Options");
  add_ask_options(table, options.ask);
  table.add("prompt", "TEXT", "what the text begins with", options.prompt);
  table.add("prompts", "FILE",
            "instead: a prompt a line, spread over the ranks; prints a JSON object a prompt",
            options.prompts);
  table.add("prompt-ids", "LIST", "instead: token ids with commas, for any vocabulary; the text comes as ids",
            options.prompt_ids);
  table.add("tokens", "N", "tokens to add at most", options.tokens);
  add_sampling_options(table, options.sampling, options.stop);
  table.add("ignore-end", "BOOL", "go on behind the model's own end tokens", options.ignore_end);
  table.add("record-routing", "FILE", "as of train: experts and weights of the prompt and of what is added",
            options.record_routing);
  return table;
}

OptionTable table_of(EvalOptions& options) {
  OptionTable table;
  table.group("Options");
  add_ask_options(table, options.ask);
  table.add(
      "data", "FILE", "as of train: text, token ids or .jsonl; several with commas, or given again",
      [&options](const std::string& text) { options.sources = read_sources(text); },
      [&options] { return sources_text(options.sources); });
  table.repeat(',');
  add_reading_options(table, options.format, options.rows, options.skip_bad, options.cache);
  table.add("seq-len", "N",
            "tokens of a sequence: longer conversations are cut, texts are read in pieces; 0: as many as "
            "the model has positions, at most 2048",
            options.sequence_length);
  table.add("batch", "N", "sequences of a rank at a time", options.batch);
  table.add("logprobs", "FILE", "a JSON object a line: log p of each example's learned tokens",
            options.logprobs);
  return table;
}

OptionTable table_of(ChatOptions& options) {
  OptionTable table;
  table.group("Options");
  add_ask_options(table, options.ask);
  table.add("message", "TEXT", "one turn, whose answer is printed; without it turns are read line by line",
            options.message);
  table.add("system", "TEXT", "a system message before the first turn", options.system);
  add_template_option(table, options.switches);
  table.add("tokens", "N", "tokens of an answer at most", options.tokens);
  add_sampling_options(table, options.sampling, options.stop);
  return table;
}

OptionTable table_of(InspectOptions& options) {
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", options.model);
  add_ignore_option(table, options.ignored_keys);
  table.add("ranks", "N", "show what each of so many ranks would hold", options.ranks);
  table.add("ep", "N", "ranks that share the experts of a layer", options.ep);
  table.add("freeze", "LIST", "as of train: memory where these are not trained", options.freeze);
  table.add("verify", "BOOL",
            "instead: read every file and compare it with manifest.json, of a run each checkpoint; 1 if any "
            "is damaged or has no manifest",
            options.verify);
  table.add("families", "BOOL", "instead: the table of model families that run, and why others do not",
            options.families);
  table.group("Data, instead");
  table.add(
      "data", "FILE", ".jsonl as of train: shows examples with what is learned of them, and counts all",
      [&options](const std::string& text) { options.data = read_sources(text); },
      [&options] { return sources_text(options.data); });
  table.repeat(',');
  table.add("examples", "N", "examples to show", options.examples);
  add_row_options(table, options.rows);
  table.add("seq-len", "N", "count those that are longer; 0: none is", options.sequence_length);
  table.positional("model");
  return table;
}

/// Fields of Upcycling are tied to `upcycling`, which is taken over where --experts asks for it.
OptionTable table_of(ConvertOptions& options, Upcycling& upcycling) {
  using Layout = std::optional<ExpertFiles>;
  OptionTable table;
  table.group("Folders");
  table.add("source", "DIR", "a run, a checkpoint or a Hugging Face folder", options.source);
  table.add("target", "DIR", "a new folder", options.target);
  add_ignore_option(table, options.ignored_keys);
  table.group("Experts from a dense model");
  table.add("experts", "N", "each a copy of the dense MLP; without this option the model stays what it is",
            upcycling.experts);
  table.add("top-k", "N", "experts that a token goes to", upcycling.top_k);
  table.add("noise", "X", "normal noise on each copy, relative to the weight's root mean square",
            upcycling.noise);
  table.add("seed", "N",
            "of the new router and the noise, or of initial weights where SOURCE holds config.json only",
            options.seed);
  table.group("Adapters");
  table.add("merge", "DIR", "an adapter of PEFT or of train --lora that is added to the weights",
            options.merge);
  table.group("Files");
  table.add_choice<Layout>(
      "layout", "experts: as they are, a tensor each (transformers 4), or stacked (5)", options.layout,
      {{"same", std::nullopt}, {"list", ExpertFiles::kList}, {"stacked", ExpertFiles::kStacked}});
  table.add_choice<std::optional<DType>>(
      "export-dtype", "what numbers are rounded to", options.dtype,
      {{"same", std::nullopt}, {"fp32", DType::kF32}, {"bf16", DType::kBF16}});
  add_shard_option(table, options.shard_bytes);
  table.positional("source");
  table.positional("target");
  return table;
}

OptionTable table_of(TokenizeOptions& options) {
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a folder with tokenizer.json, or that file", options.model);
  add_ignore_option(table, options.ignored_keys);
  table.add("in", "LIST",
            "files and folders, with commas: a line of JSON is a document, {\"text\": ...} or another row as "
            "of train, any "
            "other file is one",
            options.in);
  add_template_option(table, options.switches);
  table.add("out", "FILE", "the tokens: with an .idx beside it Megatron's, which train --data reads",
            options.out);
  table.add_choice("format", "raw: 32-bit integers alone, which train reads by the name .u32", options.raw,
                   {{"megatron", false}, {"raw", true}});
  table.add("special", "BOOL", "with the tokens that tokenizer.json puts around a text", options.special);
  table.add("end-token", "TOKEN", "stands behind each document", options.end_token);
  table.add("overwrite", "BOOL", "replace the output, and begin anew where a run was ended",
            options.overwrite);
  table.add("threads", "N", "0: OMP_NUM_THREADS, or else all processors", options.threads);
  table.add("ids", "BOOL", "instead: print the ids of each line of the input", options.ids);
  table.add("decode", "BOOL", "instead: print the text of each line of ids", options.decode);
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
  add_batch_options(table, options.batch);
  return table;
}

template <typename Options>
std::string help_of(const std::string& usage) {
  Options options;
  return usage + table_of(options).help();
}

void require_model(const std::filesystem::path& model, Mistakes& mistakes) {
  mistakes.violations.unless(!model.empty() || mistakes.unread.contains("model"), "--model DIR is needed");
}

void check_asking(const AskOptions& ask, Index tokens, const SamplingSettings& sampling,
                  Violations& violations) {
  violations.unless_at_least(1, "tokens", tokens);
  violations.attempt([&] { check(sampling); });
  violations.unless_at_least(1, "ep", ask.ep);
  check_threads(ask.threads, violations);
}

}  // namespace

GenerateOptions parse_generate_options(int argc, const char* const* argv, Violations& violations) {
  GenerateOptions options;
  Mistakes mistakes;
  const Layer layer = read_command_line(table_of(options), argc, argv, mistakes);
  require_model(options.ask.model, mistakes);
  violations.add(mistakes.violations.list());
  check_asking(options.ask, options.tokens, options.sampling, violations);
  int given = 0;
  for (const char* name : {"prompt", "prompt-ids", "prompts"}) given += layer.contains(name) ? 1 : 0;
  violations.unless(given <= 1,
                    "--prompt, --prompt-ids and --prompts are different prompts; give one of them");
  violations.unless(!options.prompt.empty(), "--prompt must hold at least one character");
  violations.unless(options.prompts.empty() || options.record_routing.empty(),
                    "--record-routing is of one text; give one prompt instead of --prompts");
  violations.unless(options.prompt_ids.empty() || options.stop.empty(),
                    "--stop is a text, and with --prompt-ids there are only ids; remove one");
  return options;
}

EvalOptions parse_eval_options(int argc, const char* const* argv, Violations& violations) {
  EvalOptions options;
  Mistakes mistakes;
  read_command_line(table_of(options), argc, argv, mistakes);
  require_model(options.ask.model, mistakes);
  violations.add(mistakes.violations.list());
  violations.unless_at_least(1, "ep", options.ask.ep);
  violations.unless_at_least(0, "seq-len", options.sequence_length);
  violations.unless_at_least(1, "batch", options.batch);
  violations.unless_at_least(0, "skip-bad", options.skip_bad);
  violations.unless(!options.sources.empty() || mistakes.unread.contains("data"), "--data FILE is needed");
  check_threads(options.ask.threads, violations);
  return options;
}

ChatOptions parse_chat_options(int argc, const char* const* argv, Violations& violations) {
  ChatOptions options;
  Mistakes mistakes;
  read_command_line(table_of(options), argc, argv, mistakes);
  require_model(options.ask.model, mistakes);
  violations.add(mistakes.violations.list());
  check_asking(options.ask, options.tokens, options.sampling, violations);
  return options;
}

GenerateOptions parse_generate_options(int argc, const char* const* argv) {
  Violations violations;
  GenerateOptions options = parse_generate_options(argc, argv, violations);
  violations.throw_if_any();
  return options;
}

InspectOptions parse_inspect_options(int argc, const char* const* argv) {
  InspectOptions options;
  Mistakes mistakes;
  read_command_line(table_of(options), argc, argv, mistakes);
  if (!options.families) require_model(options.model, mistakes);
  mistakes.violations.unless_at_least(1, "ranks", options.ranks);
  mistakes.violations.unless_at_least(1, "ep", options.ep);
  mistakes.violations.unless_at_least(0, "examples", options.examples);
  mistakes.violations.unless_at_least(0, "seq-len", options.sequence_length);
  for (const DataSource& source : options.data)
    mistakes.violations.unless(
        holds_records(source.file, std::nullopt),
        source.file.string() +
            " is no .jsonl and no .json: of a text and of token ids everything is learned");
  mistakes.violations.throw_if_any();
  return options;
}

ConvertOptions parse_convert_options(int argc, const char* const* argv) {
  ConvertOptions options;
  Upcycling upcycling;
  Mistakes mistakes;
  const Layer layer = read_command_line(table_of(options, upcycling), argc, argv, mistakes);
  Violations& violations = mistakes.violations;
  for (const char* name : {"source", "target"})
    if (!layer.contains(name) && !mistakes.unread.contains(name))
      violations.add("two folders are needed: moeloom convert SOURCE TARGET");
  if (layer.contains("experts")) options.upcycling = upcycling;
  for (const char* name : {"top-k", "noise"})
    if (layer.contains(name) && !layer.contains("experts") && !mistakes.unread.contains("experts"))
      violations.add("--" + std::string(name) + " belongs to --experts N, which is not given; remove it");
  const bool any = std::ranges::any_of(
      std::initializer_list<const char*>{"experts", "merge", "layout", "export-dtype", "shard-size"},
      [&](const char* name) { return layer.contains(name); });
  if (!any && violations.empty())
    violations.add("nothing to convert: give --experts, --merge, --layout, --export-dtype or --shard-size");
  violations.throw_if_any();
  return options;
}

TokenizeOptions parse_tokenize_options(int argc, const char* const* argv) {
  TokenizeOptions options;
  Mistakes mistakes;
  const Layer layer = read_command_line(table_of(options), argc, argv, mistakes);
  require_model(options.model, mistakes);
  Violations& violations = mistakes.violations;
  const bool writes = !options.ids && !options.decode;
  violations.unless(!(options.ids && options.decode), "--ids and --decode are two ways; give one");
  for (const char* name : {"in", "out"})
    violations.unless(!writes || layer.contains(name) || mistakes.unread.contains(name),
                      "--" + std::string(name) + " is needed, or --ids true, or --decode true");
  violations.unless(writes || !layer.contains("out"),
                    "--out takes no lines: remove it, or --ids and --decode");
  check_threads(options.threads, violations);
  violations.throw_if_any();
  return options;
}

KernelsOptions parse_kernels_options(int argc, const char* const* argv) {
  KernelsOptions options;
  Mistakes mistakes;
  note_shape(read_command_line(table_of(options), argc, argv, mistakes), options.model);
  Violations& violations = mistakes.violations;
  check_shape_source(options.model, violations);
  violations.unless_at_least(0, "ranks", options.ranks);
  violations.unless_at_least(1, "ep", options.ep);
  check_kernels(options.kernels, violations);
  violations.unless_at_least(1, "seq-len", options.batch.length);
  violations.unless_at_least(1, "global-batch", options.batch.sequences);
  violations.unless_at_least(1, "accumulate", options.batch.micro_batches);
  violations.throw_if_any();
  return options;
}

std::string generate_help() {
  return help_of<GenerateOptions>(
      "moeloom generate: text from a model\n\n"
      "  moeloom generate --model runs/latest --prompt \"In the beginning\"\n");
}

std::string chat_help() {
  return help_of<ChatOptions>(
      "moeloom chat: a conversation with a model, by its chat template\n\n"
      "  moeloom chat --model runs/latest --message \"Who was Ruth?\"\n");
}

std::string eval_help() {
  return help_of<EvalOptions>(
      "moeloom eval: how well a model predicts texts and conversations\n\n"
      "  moeloom eval --model runs/latest --data test.jsonl --logprobs scores.jsonl\n\n"
      "Nats a token and perplexity are of all learned tokens, those that end a turn or a text too; the\n"
      "first of a sequence is not predicted and not counted. Bits a byte leave special tokens out, which\n"
      "have no bytes: the loss of the text alone over its bytes in UTF-8, which models of different\n"
      "tokenizers share.\n");
}

std::string inspect_help() {
  return help_of<InspectOptions>(
      "moeloom inspect: what a model or a checkpoint holds\n\n"
      "  moeloom inspect runs/latest --ranks 4 --ep 2\n"
      "  moeloom inspect --verify runs/latest\n");
}

std::string convert_help() {
  ConvertOptions options;
  Upcycling upcycling;
  return "moeloom convert: a model's folder into another\n\n"
         "  moeloom convert DENSE_DIR MOE_DIR --experts 8 --top-k 2\n"
         "  moeloom convert SRC DST --layout stacked\n"
         "  moeloom convert MODEL DST --merge ADAPTER\n"
         "  moeloom convert CONFIG_ALONE DST --export-dtype bf16 --seed 1    # initial weights\n" +
         table_of(options, upcycling).help();
}

std::string tokenize_help() {
  return help_of<TokenizeOptions>(
      "moeloom tokenize: text into token ids\n\n"
      "  moeloom tokenize --model DIR --in corpus.txt,more/ --out data.bin\n"
      "  echo \"In the beginning\" | moeloom tokenize --model DIR --ids true\n");
}

std::string kernels_help() {
  return help_of<KernelsOptions>(
      "moeloom kernels: the kernels, what each replaces, and the decision for a model and mesh\n\n"
      "  moeloom kernels --model DIR --ranks 4 --ep 2\n");
}

}  // namespace moeloom
