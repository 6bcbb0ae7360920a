// What a model is asked: generate, chat and eval.
#include <sstream>

#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "cli/rows/command_tables.hpp"
#include "fields/data_source.hpp"
#include "fields/option_groups.hpp"
#include "fields/overwritten.hpp"
#include "fields/template_switches.hpp"

namespace moeloom {
namespace {

void add_ask_options(OptionTable& table, AskOptions& options) {
  table.group("Options");
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", "what is asked", options.model)
      .needed();
  table.add("adapter", "DIR", "an adapter of PEFT or of train --lora that is added to the model",
            "an adapter says its base by a path, which may be elsewhere", options.adapter);
  add_ignore_option(table, options.ignored_keys);
  table
      .add("ep", "N", "ranks that share the experts of a layer", "models that one rank cannot hold",
           options.ep)
      .at_least(1);
  add_threads_option(table, options.threads);
  table.positional("model");
}

constexpr char kBetweenStops = '\x1E';  // of the command line, where no text has it

std::vector<std::string> read_stops(const std::string& texts) {
  std::vector<std::string> stops;
  std::istringstream parts(texts);
  for (std::string part; std::getline(parts, part, kBetweenStops);)
    if (!part.empty()) stops.push_back(part);
  return stops;
}

void add_sampling_options(OptionTable& table, AnswerSettings& answer) {
  SamplingSettings& sampling = answer.sampling;
  const char* const why = "generation_config.json of transformers, by its name there";
  table.add("temperature", "X", "0: always the likeliest token", why, sampling.temperature);
  table.add("top-k", "N", "draw from so many of the likeliest; 0: from all", why, sampling.top_k)
      .called("top_k");
  table
      .add("top-p", "X", "draw from the fewest likeliest that have this probability together", why,
           sampling.top_p)
      .called("top_p");
  table
      .add("min-p", "X", "draw from those at least so likely as this share of the likeliest", why,
           sampling.min_p)
      .called("min_p");
  table
      .add("repetition-penalty", "X", "above 1: tokens of the text become less likely", why,
           sampling.repetition_penalty)
      .called("repetition_penalty");
  table.add("seed", "N", "of the draws", "the same text again", sampling.seed);
  table
      .add("stop", "TEXT", "ends the text before this one; may be given several times",
           "stop of the OpenAI interface", answer.stop, read_stops,
           [](const auto& stops) { return joined(stops, std::string(1, kBetweenStops)); })
      .given_again(kBetweenStops);
}

void add_tokens_option(OptionTable& table, const std::string& help, Index& tokens) {
  table.add("tokens", "N", help, "max_new_tokens of transformers", tokens).at_least(1);
}

OptionTable table_of(EvalOptions& options) {
  ScoreOptions& score = options.score;
  OptionTable table;
  add_ask_options(table, options.ask);
  table
      .add("data", "FILE", "as of train: text, token ids or .jsonl; several with commas, or given again",
           "what the model is measured by", score.sources, read_sources, sources_text)
      .needed()
      .given_again(',');
  add_reading_options(table, score.format, score.rows, score.skip_bad, score.cache);
  table
      .add("seq-len", "N",
           "tokens of a sequence: longer conversations are cut, texts are read in pieces; 0: as many as "
           "the model has positions, at most 2048",
           "perplexity goes with the context", score.sequence_length)
      .at_least(0);
  table.add("batch", "N", "sequences of a rank at a time", "memory for speed", score.batch).at_least(1);
  table.add("logprobs", "FILE", "a JSON object a line: log p of each example's learned tokens",
            "which examples a model fails at", options.logprobs);
  return table;
}

OptionTable table_of(ChatOptions& options) {
  OptionTable table;
  add_ask_options(table, options.ask);
  table.add("message", "TEXT", "one turn, whose answer is printed; without it turns are read line by line",
            "scripts", options.message);
  table.add("system", "TEXT", "a system message before the first turn", "templates have a place for it",
            options.system);
  add_template_option(table, options.switches);
  add_tokens_option(table, "tokens of an answer at most", options.answer.tokens);
  add_sampling_options(table, options.answer);
  return table;
}

}  // namespace

OptionTable generate_table(GenerateOptions& options) {
  constexpr const char* kOtherPrompt = "they are different prompts";
  OptionTable table;
  add_ask_options(table, options.ask);
  table.add("prompt", "TEXT", "what the text begins with", "the question", options.prompt);
  table
      .add("prompts", "FILE",
           "instead: a prompt a line, spread over the ranks; prints a JSON object a prompt",
           "many prompts for one start", options.prompts)
      .against("prompt", kOtherPrompt)
      .against("record-routing", "that is of one text");
  table
      .add("prompt-ids", "LIST", "instead: token ids with commas, for any vocabulary; the text comes as ids",
           "models without a tokenizer, and comparisons with transformers", options.prompt_ids)
      .against("prompt", kOtherPrompt)
      .against("prompts", kOtherPrompt)
      .against("stop", "that is a text, and there are only ids");
  add_tokens_option(table, "tokens to add at most", options.answer.tokens);
  add_sampling_options(table, options.answer);
  table.add("ignore-end", "BOOL", "go on behind the model's own end tokens",
            "ignore_eos of vLLM: measurements of so many tokens", options.answer.ignore_end);
  table.add("record-routing", "FILE", "as of train: experts and weights of the prompt and of what is added",
            "which experts a text has", options.answer.record_routing);
  return table;
}

GenerateOptions parse_generate_options(int argc, const char* const* argv, Violations& violations) {
  GenerateOptions options;
  read_command_line(generate_table(options), argc, argv, violations);
  violations.attempt([&] { check(options.answer.sampling); });
  const auto& [ask, prompt, prompt_ids, prompts, answer] = options;
  refuse_overwriting({"record-routing", answer.record_routing},
                     {{"model", ask.model}, {"adapter", ask.adapter}, {"prompts", prompts}}, violations);
  violations.unless(!options.prompt.empty(), "--prompt must hold at least one character");
  return options;
}

EvalOptions parse_eval_options(int argc, const char* const* argv, Violations& violations) {
  EvalOptions options;
  read_command_line(table_of(options), argc, argv, violations);
  std::vector<NamedPath> inputs = {{"model", options.ask.model}, {"adapter", options.ask.adapter}};
  for (const DataSource& source : options.score.sources) inputs.push_back({"data", source.file});
  refuse_overwriting({"logprobs", options.logprobs}, inputs, violations);
  options.score.by_example = !options.logprobs.empty();
  return options;
}

ChatOptions parse_chat_options(int argc, const char* const* argv, Violations& violations) {
  ChatOptions options;
  read_command_line(table_of(options), argc, argv, violations);
  violations.attempt([&] { check(options.answer.sampling); });
  return options;
}

Help generate_help() {
  GenerateOptions options;
  return "moeloom generate: text from a model\n\n"
         "  moeloom generate --model runs/latest --prompt \"In the beginning\"\n" +
         help_of(generate_table(options));
}

Help chat_help() {
  ChatOptions options;
  return "moeloom chat: a conversation with a model, by its chat template\n\n"
         "  moeloom chat --model runs/latest --message \"Who was Ruth?\"\n" +
         help_of(table_of(options));
}

Help eval_help() {
  EvalOptions options;
  return "moeloom eval: how well a model predicts texts and conversations\n\n"
         "  moeloom eval --model runs/latest --data test.jsonl --logprobs scores.jsonl\n\n"
         "Nats a token and perplexity are of all learned tokens, those that end a turn or a text too; the\n"
         "first of a sequence is not predicted and not counted. Bits a byte leave special tokens out, which\n"
         "have no bytes: the loss of the text alone over its bytes in UTF-8, which models of different\n"
         "tokenizers share.\n" +
         help_of(table_of(options));
}

}  // namespace moeloom
