// Parsers of run and of what runs leave: metrics, points, kept rates, a run's folder, what a checkpoint was
// made with, files of texts.
#include "measure/sweep/file.hpp"
#include "plan/rates/rate_cache.hpp"
#include "run/data/document_reader.hpp"
#include "run/open/run_settings.hpp"
#include "run/record/metrics.hpp"
#include "run/summary/runs_report.hpp"
#include "run/words/model_text.hpp"

#include "fuzz/json_words.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

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

// ---- a run's folder, and its checkpoint ------------------------------------------------------------------

/// metrics.jsonl, restarts.jsonl and train.conf, a byte 0xFF between two.
void run_run_folder(std::string_view input) {
  static MemoryFolder folder;
  for (const char* name : {"metrics.jsonl", "restarts.jsonl", "train.conf"}) {
    const std::size_t cut = std::min(input.find('\xff'), input.size());
    folder.hold(name, input.substr(0, cut));
    input.remove_prefix(std::min(cut + 1, input.size()));
  }
  const std::vector<RunRecord> runs = read_runs({folder.path()});
  const TimeUse use = time_use(runs.front().steps, runs.front().restarts, 0, 1, 0);
  expect(use.restarts <= std::ssize(runs.front().restarts), "more restarts than lines");
  expect(!page_html(runs_report(runs), {}).empty(), "a page of nothing");
}

std::vector<std::string> run_folder_seeds() {
  StepMetrics step;
  step.step = 3;
  step.layers.resize(2);
  step.layers[1].max_over_mean = 1.5;
  const std::string metrics = metrics_line(step) + "\n" + metrics_line(StepMetrics()) + "\n";
  return {metrics,
          metrics + "\xff" +
              R"({"started":1,"ended":2.5,"exit_code":76,"reason":"a <b>","rank":1,"steps":4,"from":2,)" +
              R"("resumed":1,"lost_seconds":3,"lost_starting":1,"lost_saving":0})" +
              "\n{\n\xffsteps = 3 # \"x\"\n"};
}

/// trainer_state.json, of which a run with one step says what is other now.
void run_resumed(std::string_view input) {
  const TrainerState then = TrainerState::from(Document::parse(input, "trainer_state.json"));
  TrainerState now;
  now.settings = document_of(TrainerSettings());
  now.settings.set("data_sources", std::vector<std::string>{"sum\nname\ncontents: x"});
  for (const char* text : {"learn", "too_long", "heldout", "data_weights", "router"})
    now.settings.set(text, "x");
  for (const char* number : {"capacity_factor", "router_bias_rate"}) now.settings.set(number, 1.0);
  changes_between(then, now);
}

std::vector<std::string> resumed_seeds() {
  TrainerState state;
  state.settings = document_of(TrainerSettings());
  const std::string scheduled = state.to_document().dump();
  for (const char* text : {"learn", "too_long", "heldout", "data_weights", "router", "drop_by"})
    state.settings.set(text, "y");
  state.settings.set("capacity_factor", 1e308);
  state.settings.set("aux_loss_pooled", false);
  state.settings.set("warmup", 3);
  state.settings.set("data_sources", std::vector<std::string>{"other\nname\nlearns: x\ncontents: y"});
  return {scheduled, state.to_document().dump()};
}

void run_generation_config(std::string_view input) {
  static MemoryFolder folder;
  folder.hold("generation_config.json", input);
  for (const std::int32_t id : end_tokens_in(folder.path())) expect(id >= 0, "a text ends with no id");
}

std::vector<std::string> generation_config_seeds() {
  return {R"({"eos_token_id": [11, 9]})", R"({"eos_token_id": 3, "temperature": 0.6})"};
}

// ---- files of texts --------------------------------------------------------------------------------------

/// Plain, packed by gzip, a record a line, or an array of records.
void run_data_file(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  const DataText data(file.path());
  const std::string_view text = data.text();
  if (is_json_array(text))
    try_it([&] {
      for (const std::string_view element : json_elements(text, "input"))
        expect(!element.empty() && element.data() > text.data() &&
                   element.data() + element.size() < text.data() + text.size(),
               "an element leads out of its array");
    });
  DocumentReader reader({file.path()});
  std::size_t bytes = 0;
  while (reader.place().file < 1)
    for (const DocumentPart& part : reader.next(64)) {
      bytes += part.bytes.size();
      expect(part.bytes.empty() || text.find(part.bytes) != std::string_view::npos, "a part of no text");
    }
  expect(bytes <= text.size() && (begins_as_json(file.path()) || bytes == text.size()), "a text has holes");
}

/// Of a gzip file one stored block, and one that says a byte a thousand times.
const std::string kStored(
    "\x1f\x8b\x08\0\0\0\0\0\0\3\1\5\0\xfa\xff"
    "hello\x86\xa6\x10\x36\5\0\0\0",
    28);
const std::string kRepeated(
    "\x1f\x8b\x08\0\0\0\0\0\2\3\x4b\x4c\x1c\5\xa3\x60\x14\x0cw\0\0\3\xda\x38\x9a\xe8\3\0\0", 29);

std::vector<std::string> data_file_seeds() {
  return {"a text\nof lines\n",
          "{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n",
          " [{\"text\": \"a]\\\"\"}, {\"b\": [1, {}]}]\n",
          kStored,
          kStored + kRepeated + std::string(3, '\0'),
          kRepeated};
}

}  // namespace

std::vector<Target> run_targets() {
  const std::vector<std::string> json = {"null", "-1", "1e400", "1e308",
                                         "\"\"", "[]", "{}",    "9223372036854775807"};
  return {{"metrics", run_metrics, metrics_seeds, json},
          {"points", run_points, points_seeds, json},
          {"rates", run_rates, rates_seeds, json},
          {"run_folder", run_run_folder, run_folder_seeds,
           with_json({"\xff", "\n", "\"step\"", "\"layers\"", "\"started\"", "\"steps\"", "\"loss\"",
                      "\"seconds\"", " = ", "-9223372036854775808", "1e308"})},
          {"resumed", run_resumed, resumed_seeds,
           with_json({"\"warmup\"", "\"schedule_steps\"", "\"lr\"", "\"global_step\"", "\"data_sources\"",
                      "\"capacity_factor\"", "\"router_jitter\"", "\"format\"", "\\n", ": ", "1e308"})},
          {"generation_config", run_generation_config, generation_config_seeds,
           with_json({"\"eos_token_id\"", "2147483647", "2147483648"})},
          {"data_file",
           run_data_file,
           data_file_seeds,
           {"\x1f\x8b\x08", "[", "]", "{", "}", ",", "\"", "\\", "\n", "PAR1", "\xef\xbb\xbf",
            std::string(4, '\0'), "{\"text\":", kStored, kRepeated}}};
}

}  // namespace moeloom::fuzz
