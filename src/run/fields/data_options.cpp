// How data are read, and in which batches: rows of every command that takes some.
#include "fields/option_groups.hpp"
#include "fields/template_switches.hpp"

namespace moeloom {

void add_template_option(OptionTable& table, TemplateSwitches& switches) {
  table
      .add("template", "KEY=VALUE",
           "what the chat template is told, as enable_thinking=false; a value is JSON, else a text; several "
           "with "
           "commas, or given again; a row's chat_template_kwargs wins",
           "templates of Qwen3 and others ask for it; chat_template_kwargs of vLLM", switches,
           read_template_switches, [](const TemplateSwitches& said) { return said.text; })
      .given_again(',');
}

void add_row_options(OptionTable& table, RowOptions& rows) {
  table.add_choice<LearnRule>(
      "learn", "of conversations: what the assistant says, its last turn alone, or everything",
      "assistant_only_loss of TRL; reasoning models learn the last turn alone", rows.learn,
      {{"assistant", LearnRule::kAssistant}, {"last", LearnRule::kLast}, {"all", LearnRule::kAll}});
  add_template_option(table, rows.switches);
}

void add_ignore_option(OptionTable& table, std::set<std::string>& ignored) {
  table
      .add(
          "ignore-keys", "LIST",
          "keys that may be unknown: of config.json, adapter_config.json, files of the tokenizer and records "
          "of "
          "data; an error about unknown keys says the whole list",
          "unknown keys are refused, and not each of them matters", ignored,
          [](const std::string& text) {
            const auto keys = value_from<std::vector<std::string>>(text);
            return std::set<std::string>{keys.begin(), keys.end()};
          },
          [](const auto& keys) {
            return joined({keys.begin(), keys.end()}, ",");
          })
      .called("ignored keys");
}

void add_reading_options(OptionTable& table, std::optional<TokenFormat>& format, RowOptions& rows,
                         Index& skip_bad, std::filesystem::path& cache) {
  table
      .add_choice<std::optional<TokenFormat>>("data-format",
                                              "auto goes by the name: .bin with .idx is megatron, .bin u16, "
                                              ".u32 u32, .jsonl, .ndjson and .json records, else text; "
                                              ".gz is unpacked",
                                              "a .bin of nanoGPT and one of Megatron-LM have the same ending",
                                              format,
                                              {{"auto", std::nullopt},
                                               {"text", TokenFormat::kText},
                                               {"u16", TokenFormat::kU16},
                                               {"u32", TokenFormat::kU32},
                                               {"megatron", TokenFormat::kMegatron}})
      .called("data format");
  add_row_options(table, rows);
  table
      .add("skip-bad", "N", "lines of .jsonl that may be unusable and are left out; more are an error",
           "collected data have a few bad lines, and a run must not learn from half a file", skip_bad)
      .at_least(0);
  table.add("cache", "DIR",
            "where tokenized data are kept; empty: of train data/ in the run's folder, else the user's cache",
            "tokenizing takes longer than reading; nodes share a disk, or do not", cache);
}

void add_batch_options(OptionTable& table, BatchShape& batch) {
  table
      .add("seq-len", "N", "tokens of one sequence", "Megatron-LM's `seq-length`; memory goes with it",
           batch.length)
      .at_least(1)
      .called("sequence length");
  table
      .add("global-batch", "N", "sequences a step, over all ranks",
           "Megatron-LM's `global-batch-size`: the same run on any number of ranks", batch.sequences)
      .at_least(1);
  table
      .add("accumulate", "N", "micro-batches that one step is cut into",
           "gradient_accumulation_steps of transformers: batches that do not fit at once",
           batch.micro_batches)
      .at_least(1);
}

}  // namespace moeloom
