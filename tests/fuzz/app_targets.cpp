// Parsers of what a run is told: command lines, train.conf, words of flags.
#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/glob.hpp"
#include "moeloom/job/mesh_shape.hpp"
#include "run/fields/adapter_text.hpp"
#include "run/fields/config_file.hpp"
#include "run/fields/data_source.hpp"
#include "run/fields/fault.hpp"
#include "run/fields/network_text.hpp"
#include "run/fields/option_values.hpp"
#include "run/fields/template_switches.hpp"

#include <cmath>

#include "app/cli/options.hpp"
#include "app/cli/rows/bench_ep_options.hpp"
#include "fields/train_fields.hpp"
#include "fuzz/lines.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"

namespace moeloom::fuzz {
namespace {

template <typename Parse>
void parse_words(const std::vector<std::string>& words, const Parse& parse) {
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    parse(static_cast<int>(argv.size()), argv.data());
  } catch (const Error&) {
  }
}

/// What is resolved must mean the same when it is read.
void check_resolved(const TrainOptions& options) {
  static MemoryFile file;
  option_violations(options, 4);
  const std::string text = resolved_config(options);
  file.hold(text);
  const std::string argument = "--config=" + file.path().string();
  const char* const argv[] = {"train", argument.c_str()};
  expect(resolved_config(parse_train_options(2, argv)) == text,
         "a resolved configuration reads back as another");
}

struct Command {
  std::string_view name;
  void (*parse)(int argc, const char* const* argv);
};

template <auto Parse>
void read_words(int argc, const char* const* argv) {
  if constexpr (requires { Parse(argc, argv); }) {
    Parse(argc, argv);
  } else {
    Violations violations;
    Parse(argc, argv, violations);
  }
}

using Words = const char* const*;

constexpr Command kCommands[] = {
    {"train", [](int argc, Words argv) { check_resolved(parse_train_options(argc, argv)); }},
    {"generate", read_words<parse_generate_options>},
    {"chat", read_words<parse_chat_options>},
    {"eval", read_words<parse_eval_options>},
    {"inspect", read_words<parse_inspect_options>},
    {"convert", read_words<parse_convert_options>},
    {"tokenize", read_words<parse_tokenize_options>},
    {"report", read_words<parse_report_options>},
    {"kernels", read_words<parse_kernels_options>},
    {"bench", read_words<parse_bench_ep_options>},
    {"calibrate", read_words<parse_calibrate_options>},
    {"plan", read_words<parse_plan_options>},
    {"mesh", read_words<parse_mesh_question>}};

/// The first line names the command: each makes a table of all of its options. What no command is called goes
/// to train.
void run_command_line(std::string_view input) {
  const std::string_view name = input.substr(0, input.find('\n'));
  const auto* const named = std::ranges::find(kCommands, name, &Command::name);
  const Command& command = named == std::end(kCommands) ? kCommands[0] : *named;
  parse_words(lines_of(input.substr(std::min(name.size() + 1, input.size()))), command.parse);
}

std::vector<std::string> command_line_seeds() {
  return {"train\n--steps=10\n--lr\n1e-3\n--dtype\nbf16\n--overwrite\n",
          "train\n--ep\n2\n--dp=auto\n--freeze=*norm*,*embed*\n--gmm-budget=4GiB\n",
          "generate\nmodel\n--prompt\nhello\n--unknown=1\n--\n=\n",
          "chat\nmodel\n--message=hello\n--temperature=0\n",
          "eval\nmodel\n--data=a.txt,b.jsonl\n--batch=2\n",
          "inspect\nmodel\n--ranks=4\n--ep\n2\n",
          "convert\n--experts\n8\n--top-k\n2\n--layout\nstacked\nsource\ntarget\n",
          "tokenize\n--model=x\n--in=a,b\n--out\nc.bin\n--format=raw\n",
          "kernels\n--ranks=4\n--ep=2\n",
          "bench\n--ep-list=1,2,4\n--experts\n8\n",
          "calibrate\n--net=10Gbit,5us\n",
          "plan\n--ranks=8\n--net=200Gbit,2us\n--ep-list=1,2,4\n",
          "train\n--net=10Gbit,15us\n",
          "mesh\n--slots=2,2\n--\n--ep=2\n"};
}

void run_train_conf(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  Violations violations;
  for (const auto& [name, given] : parse_config(std::string(input), "train.conf", violations)) {
    const Layer again = parse_config("key = " + config_value(given.value), "again", violations);
    expect(again.contains("key") && again.at("key").value == given.value,
           "a value that was written reads back as another");
  }
  violations.throw_if_any();
  const std::string argument = "--config=" + file.path().string();
  const char* const argv[] = {"train", argument.c_str()};
  check_resolved(parse_train_options(2, argv));
}

std::vector<std::string> train_conf_seeds() {
  return {"# a run\nsteps = 10\nlr = 1e-3   # peak\nfreeze = *norm*,*embed*\n",
          "out = \"a # b \\\" \\n\"  # quoted\n", "ep = 2\nep = 3\noverwrite = yes\nwrong\n",
          resolved_config(TrainOptions())};
}

std::vector<std::string> option_words() {
  std::vector<std::string> words = {
      "--", "=",  "auto", "true",  "1e308", "-1",   "4GiB",      "200Gbit,2us",        "10:20",
      "\"", "# ", "\\n",  "0,1,2", "*",     "bf16", "--config=", "9223372036854775807"};
  const std::string help = train_help().text;
  for (std::size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 2)) {
    const std::string name = help.substr(at, help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at) - at);
    if (name.size() > 3) words.push_back(name);
    if (name.size() > 3) words.push_back(name.substr(2));
  }
  return words;
}

std::vector<std::string> command_words() {
  std::vector<std::string> words = option_words();
  for (const Command& command : kCommands) words.push_back(std::string(command.name) + "\n");
  return words;
}

/// What `read` makes of the text, through `again`, is the same once more.
template <typename Value>
void check_value(const std::string& text) {
  Value value{};
  try {
    read_value(text, value);
  } catch (const BadValue&) {
    return;
  }
  Value again{};
  read_value(value_text(value), again);
  expect(value_text(again) == value_text(value), "a value that was written reads back as another");
}

void run_flag_words(std::string_view input) {
  const std::string text(input);
  check_value<Index>(text);
  check_value<std::uint64_t>(text);
  check_value<double>(text);
  check_value<bool>(text);
  check_value<std::vector<Index>>(text);
  check_value<std::vector<std::string>>(text);
  check_value<StepRange>(text);
  check_value<std::optional<Index>>(text);
  closest(text, {"steps", "global-batch", "record-routing"});
  matches_glob(input.substr(0, input.size() / 2), input.substr(input.size() / 2));
  try {
    const Index bytes = read_bytes(text);
    expect(bytes >= 0 && read_bytes(exact_bytes_text(bytes)) == bytes, "bytes read back as another number");
  } catch (const BadValue&) {
  }
  try {
    const NetworkOptions network = read_network(text);
    expect(std::isfinite(network.bytes_per_second) && network.bytes_per_second > 0 &&
               std::isfinite(network.message_seconds) && network.message_seconds > 0,
           "a network without a rate");
    read_network(network_text(network));
  } catch (const BadValue&) {
  }
}

std::vector<std::string> flag_words_seeds() {
  return {"200Gbit,2us",  "1e308GB,1e-300ns",
          "4GiB",         "9223372036854775807TiB",
          "10:20",        "0,1,2",
          "*a*b*cabcabc", "auto",
          "1e-3",         "-0",
          "yes"};
}

/// Words that have parts: sources with weights, adapters, switches of templates, faults, orders of a mesh.
void run_compound_words(std::string_view input) {
  const std::string text(input);
  const auto reads_back = [&](const auto& read, const auto& write) {
    try {
      const std::string written = write(read(text));
      expect(write(read(written)) == written, "words that were written read back as others");
    } catch (const BadValue&) {
    }
  };
  reads_back(read_adapter, adapter_text);
  reads_back(read_sources, sources_text);
  reads_back(read_template_switches, [](const TemplateSwitches& switches) { return switches.text; });
  for (const Fault& fault : faults_from_text(input).value_or(std::vector<Fault>()))
    expect(fault.rank >= 0 && fault.step >= 0 && fault.layer >= -1, "a fault at no place");
  expect(parse_mesh_order(text).size() == 2, "a mesh has two axes");
}

std::vector<std::string> compound_words_seeds() {
  return {"a.jsonl:0.7,b.bin:0.3",
          "r=16,alpha=32,dropout=0.1,rslora=true,init=gaussian,targets=attention,*.q_proj",
          "enable_thinking=false,tools=[1,{\"a\":\"b,c=d\"}],name=x y", "kill:1:12:experts:3,nan:0:2:loss",
          "ep,dp"};
}

}  // namespace

std::vector<Target> app_targets() {
  return {{"command_line", run_command_line, command_line_seeds, command_words()},
          {"train_conf", run_train_conf, train_conf_seeds, option_words()},
          {"flag_words",
           run_flag_words,
           flag_words_seeds,
           {"Gbit", "Mbit", "GB", "MB", "ms", "us", "ns", "TiB", "KiB", "1e308", "1e-320", "-", ":", ",", "*",
            "?"}},
          {"compound_words",
           run_compound_words,
           compound_words_seeds,
           {":",  ",",    "=",      "\"",       "[",       "]",        "{",     "}",
            "\\", "r=",   "alpha=", "targets=", "init=",   "dropout=", "1e308", "1e-320",
            "-1", "kill", "nan",    ":0",       "experts", "dp",       "ep",    "9223372036854775807"}}};
}

}  // namespace moeloom::fuzz
