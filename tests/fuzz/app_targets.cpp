// Parsers of app and of what runs leave: command lines, train.conf, words of flags, the environment, metrics,
// points, kept rates.
#include "base/text.hpp"
#include "measure/sweep/file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/glob.hpp"
#include "plan/rates/rate_cache.hpp"
#include "run/fields/config_file.hpp"
#include "run/fields/network_text.hpp"
#include "run/fields/option_values.hpp"
#include "run/record/metrics.hpp"

#include <cmath>

#include "app/cli/environment.hpp"
#include "app/cli/options.hpp"
#include "app/cli/rows/bench_ep_options.hpp"
#include "fields/train_fields.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

/// As an argument of main: up to a zero byte.
std::vector<std::string> lines_of(std::string_view input) {
  std::vector<std::string> lines = {"command"};
  while (!input.empty()) {
    const std::size_t end = input.find('\n');
    lines.push_back(std::string(input.substr(0, end)).c_str());
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  }
  return lines;
}

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
  const std::string help = train_help();
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

void run_environment(std::string_view input) {
  const std::vector<std::string> lines = lines_of(input);
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    for (const std::string& line : lines)
      if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
    return std::nullopt;
  };
  launcher_rank(lookup);
  const RunFlags flags = read_environment(lookup);
  expect(!flags.threads || *flags.threads >= 1, "less than one thread");
}

std::vector<std::string> environment_seeds() {
  return {"MOELOOM_PATCH=1\nTWINKLE_NPU_PATCH=0\nOMP_NUM_THREADS=4,2\n",
          "MOELOOM_GMM_PATCH=force\nMOELOOM_BF16=emulate\nMOELOOM_PRETEND_NODES=2\n",
          "OMPI_COMM_WORLD_RANK=3\nMOELOOM_LOG=debug\nXDG_CACHE_HOME=/tmp\nHOME=x\n"};
}

// ---- what runs leave -------------------------------------------------------------------------------------

void run_metrics(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  for (const StepMetrics& metrics : read_metrics(file.path())) metrics_line(metrics);
}

std::vector<std::string> metrics_seeds() {
  return {metrics_line(StepMetrics()) + "\n" + metrics_line(StepMetrics()) + "\n{\"step\":"};
}

void run_points(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  csv_of(read_points(file.path()));
}

std::vector<std::string> points_seeds() {
  return {document_of(EpRow()).dump(-1) + "\n"};
}

void run_rates(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  const MachineAnswer answer = kept_machine_rates(file.path(), "machine", RateCase(), 64);
  expect(!answer.rates || answer.rates->copy_bytes > 0, "a rate of nothing");
}

std::vector<std::string> rates_seeds() {
  MachineRates rates;
  const testing::TemporaryFolder folder;
  keep_machine_rates(folder / "rates.json", "machine", RateCase(), rates);
  return {testing::read_bytes(folder / "rates.json")};
}

}  // namespace

std::vector<Target> app_targets() {
  const std::vector<std::string> json = {"null", "-1", "1e400", "1e308",
                                         "\"\"", "[]", "{}",    "9223372036854775807"};
  return {
      {"command_line", run_command_line, command_line_seeds, command_words()},
      {"train_conf", run_train_conf, train_conf_seeds, option_words()},
      {"flag_words",
       run_flag_words,
       flag_words_seeds,
       {"Gbit", "Mbit", "GB", "MB", "ms", "us", "ns", "TiB", "KiB", "1e308", "1e-320", "-", ":", ",", "*",
        "?"}},
      {"environment",
       run_environment,
       environment_seeds,
       {"MOELOOM_", "TWINKLE_NPU_", "PATCH=", "FUSED_OPS=", "GMM_PATCH=", "OMP_NUM_THREADS=", "auto", "4,2"}},
      {"metrics", run_metrics, metrics_seeds, json},
      {"points", run_points, points_seeds, json},
      {"rates", run_rates, rates_seeds, json}};
}

}  // namespace moeloom::fuzz
