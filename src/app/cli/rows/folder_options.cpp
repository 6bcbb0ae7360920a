// Of folders and files, read and written by one process: inspect, convert, tokenize and report.
#include "base/text.hpp"

#include <algorithm>
#include <initializer_list>

#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "cli/rows/command_tables.hpp"
#include "fields/data_source.hpp"
#include "fields/option_groups.hpp"
#include "fields/overwritten.hpp"
#include "fields/template_switches.hpp"

namespace moeloom {
namespace {

OptionTable table_of(InspectOptions& options) {
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a run, a checkpoint or a Hugging Face folder", "what is looked at",
            options.model);
  add_ignore_option(table, options.ignored_keys);
  table
      .add("ranks", "N", "show what each of so many ranks would hold", "before machines are asked for",
           options.ranks)
      .at_least(1);
  table.add("ep", "N", "ranks that share the experts of a layer", "as of train", options.ep).at_least(1);
  table.add("freeze", "LIST", "as of train: memory where these are not trained", "as of train",
            options.freeze);
  table.add("verify", "BOOL",
            "instead: read every file and compare it with manifest.json, of a run each checkpoint; answers "
            "65 if any is damaged or has no manifest",
            "a copy, or a disk that is old", options.verify);
  table.add("families", "BOOL", "instead: the table of model families that run, and why others do not",
            "what this build knows", options.families);
  table.group("Data, instead");
  table
      .add("data", "FILE", ".jsonl as of train: shows examples with what is learned of them, and counts all",
           "masks are wrong in silence", options.data, read_sources, sources_text)
      .given_again(',');
  table.add("examples", "N", "examples to show", "a few are read, all are counted", options.examples)
      .at_least(0);
  add_row_options(table, options.rows);
  table
      .add("seq-len", "N", "count those that are longer; 0: none is", "what --too-long would touch",
           options.sequence_length)
      .at_least(0);
  table.positional("model");
  return table;
}

OptionTable table_of(ReportOptions& options) {
  constexpr char kBetween = '\n';  // no name of a folder has it, or few
  const auto read = [](const std::string& text) {
    std::vector<std::filesystem::path> folders;
    for (const std::string& folder : split(text, kBetween)) folders.emplace_back(folder);
    return folders;
  };
  const auto write = [](const std::vector<std::filesystem::path>& folders) {
    std::string text;
    for (const auto& folder : folders) text += (text.empty() ? "" : " ") + folder.string();
    return text;
  };
  OptionTable table;
  table.group("Options");
  table
      .add("runs", "RUN", "folder of a run; several lie over each other", "what is compared", options.runs,
           read, write)
      .given_again(kBetween);
  table.add("out", "FILE", "the page; the report.html of a run stays", "not in any of the runs", options.out);
  table.positional("runs");
  return table;
}

OptionTable table_of(TokenizeOptions& options) {
  constexpr const char* kPrinted = "it prints lines, and writes no file";
  const auto of_files = [&](Option& option) { option.against("ids", kPrinted).against("decode", kPrinted); };
  OptionTable table;
  table.group("Options");
  table.add("model", "DIR", "a folder with tokenizer.json, or that file", "whose tokens", options.model)
      .needed();
  add_ignore_option(table, options.ignored_keys);
  table.add("in", "LIST",
            "files and folders, with commas: a line of JSON is a document, {\"text\": ...} or another row as "
            "of train, any other file is one",
            "what is tokenized", options.in);
  add_template_option(table, options.switches);
  of_files(table.add("out", "FILE",
                     "the tokens: NAME.bin with NAME.idx beside it is Megatron's, which train --data reads",
                     "tokenized once, read by every run", options.out));
  of_files(table.add_choice("format", "raw: 32-bit integers alone, which train reads by the name .u32",
                            "programs that read plain integers", options.raw,
                            {{"megatron", false}, {"raw", true}}));
  table.add("special", "BOOL", "with the tokens that tokenizer.json puts around a text",
            "add_special_tokens of transformers", options.special);
  of_files(table.add("end-token", "TOKEN", "stands behind each document", "--append-eod of Megatron-LM",
                     options.end_token));
  of_files(table.add("overwrite", "BOOL", "replace the output, and begin anew where a run was ended",
                     "hours of work that were not meant to be replaced", options.overwrite));
  add_threads_option(table, options.threads, "0: OMP_NUM_THREADS, or else all processors");
  table
      .add("ids", "BOOL", "instead: print the ids of each line of the input", "comparisons by hand",
           options.ids)
      .against("decode", "they are two ways");
  table.add("decode", "BOOL", "instead: print the text of each line of ids", "comparisons by hand",
            options.decode);
  return table;
}

}  // namespace

OptionTable convert_table(ConvertOptions& options, Upcycling& upcycling) {
  using Layout = std::optional<ExpertFiles>;
  OptionTable table;
  table.group("Folders");
  table.add("source", "DIR", "a run, a checkpoint or a Hugging Face folder", "what is converted",
            options.source);
  table.add("target", "DIR", "a new folder", "the source stays", options.target);
  add_ignore_option(table, options.ignored_keys);
  table.group("Experts from a dense model");
  table.add("experts", "N", "each a copy of the dense MLP; without this option the model stays what it is",
            "sparse upcycling (Komatsuzaki et al. 2023)", upcycling.experts);
  table.add("top-k", "N", "experts that a token goes to", "the new model's", upcycling.top_k).with("experts");
  table
      .add("noise", "X", "normal noise on each copy, relative to the weight's root mean square",
           "copies that are equal learn apart more slowly", upcycling.noise)
      .with("experts");
  table.add("seed", "N",
            "of the new router and the noise, or of initial weights where SOURCE holds config.json only",
            "the same model again", options.seed);
  table.group("Adapters");
  table.add("merge", "DIR", "an adapter of PEFT or of train --lora that is added to the weights",
            "merge_and_unload of PEFT", options.merge);
  table.group("Files");
  table
      .add_choice<Layout>(
          "layout", "experts: as they are, a tensor each (transformers 4), or stacked (5)",
          "each version of transformers writes one of them", options.layout,
          {{"same", std::nullopt}, {"list", ExpertFiles::kList}, {"stacked", ExpertFiles::kStacked}})
      .called("expert layout");
  table.add_choice<std::optional<DType>>(
      "export-dtype", "what numbers are rounded to", "published models are in bf16", options.dtype,
      {{"same", std::nullopt}, {"fp32", DType::kF32}, {"bf16", DType::kBF16}});
  add_shard_option(table, options.shard_bytes);
  table.positional("source");
  table.positional("target");
  return table;
}

InspectOptions parse_inspect_options(int argc, const char* const* argv) {
  InspectOptions options;
  Violations violations;
  read_command_line(table_of(options), argc, argv, violations);
  violations.unless(options.families || !options.model.empty(), "--model DIR is needed");
  for (const DataSource& source : options.data)
    violations.unless(holds_records(source.file, std::nullopt),
                      source.file.string() +
                          " is no .jsonl and no .json: of a text and of token ids everything is learned");
  violations.throw_if_any();
  return options;
}

ConvertOptions parse_convert_options(int argc, const char* const* argv) {
  ConvertOptions options;
  Upcycling upcycling;
  Violations violations;
  const Layer layer = read_command_line(convert_table(options, upcycling), argc, argv, violations);
  violations.unless(layer.contains("source") && layer.contains("target"),
                    "two folders are needed: moeloom convert SOURCE TARGET");
  if (layer.contains("experts")) options.upcycling = upcycling;
  const bool any = std::ranges::any_of(
      std::initializer_list<const char*>{"experts", "merge", "layout", "export-dtype", "shard-size"},
      [&](const char* name) { return layer.contains(name); });
  violations.unless(any || !violations.empty(),
                    "nothing to convert: give --experts, --merge, --layout, --export-dtype or --shard-size");
  violations.throw_if_any();
  return options;
}

TokenizeOptions parse_tokenize_options(int argc, const char* const* argv) {
  TokenizeOptions options;
  Violations violations;
  const Layer layer = read_command_line(table_of(options), argc, argv, violations);
  const bool writes = !options.ids && !options.decode;
  for (const char* name : {"in", "out"})
    violations.unless(!writes || layer.contains(name),
                      "--" + std::string(name) + " is needed, or --ids true, or --decode true");
  violations.unless(!layer.contains("in") || !options.in.empty(),
                    "--in needs names of files or folders, as --in corpus.txt,more/");
  violations.unless(!writes || options.raw || options.out.empty() || options.out.extension() == ".bin",
                    "--out " + options.out.string() + ": who reads Megatron's tokens takes " +
                        options.out.string() + ".bin; write that, or --format raw");
  violations.throw_if_any();
  return options;
}

ReportOptions parse_report_options(int argc, const char* const* argv) {
  ReportOptions options;
  Violations violations;
  read_command_line(table_of(options), argc, argv, violations);
  violations.unless(!options.runs.empty(), "folders of runs are needed: moeloom report RUN [RUN...]");
  for (const std::filesystem::path& run : options.runs)
    violations.unless(options.out.empty() || !lies_in(options.out, run),
                      "--out " + options.out.string() + " lies in " + run.string() +
                          ", whose files stay as they are; choose a place outside of the runs");
  violations.unless(!options.out.empty(), "--out needs the name of a file, as --out runs.html");
  violations.throw_if_any();
  return options;
}

Help inspect_help() {
  InspectOptions options;
  return "moeloom inspect: what a model or a checkpoint holds\n\n"
         "  moeloom inspect runs/latest --ranks 4 --ep 2\n"
         "  moeloom inspect --verify runs/latest\n" +
         help_of(table_of(options));
}

Help convert_help() {
  ConvertOptions options;
  Upcycling upcycling;
  return "moeloom convert: a model's folder into another\n\n"
         "  moeloom convert DENSE_DIR MOE_DIR --experts 8 --top-k 2\n"
         "  moeloom convert SRC DST --layout stacked\n"
         "  moeloom convert MODEL DST --merge ADAPTER\n"
         "  moeloom convert CONFIG_ALONE DST --export-dtype bf16 --seed 1    # initial weights\n" +
         help_of(convert_table(options, upcycling));
}

Help report_help() {
  ReportOptions options;
  return "moeloom report: runs on one page, their lines over each other\n\n"
         "  moeloom report runs/a runs/b runs/c\n"
         "  moeloom report runs/* --out compared.html\n" +
         help_of(table_of(options));
}

Help tokenize_help() {
  TokenizeOptions options;
  return "moeloom tokenize: text into token ids\n\n"
         "  moeloom tokenize --model DIR --in corpus.txt,more/ --out data.bin\n"
         "  echo \"In the beginning\" | moeloom tokenize --model DIR --ids true\n" +
         help_of(table_of(options));
}

}  // namespace moeloom
