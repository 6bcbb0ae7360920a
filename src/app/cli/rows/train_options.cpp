// Where the settings of train come from: the command line, --config, and train.conf of the run that goes on.
#include <algorithm>

#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// The run that a checkpoint lies in, or the folder itself.
fs::path run_of(const fs::path& resume) {
  const fs::path folder = resume.has_filename() ? resume : resume.parent_path();
  if (!folder.filename().string().starts_with("checkpoint-")) return folder;
  return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
}

bool is_filled(const fs::path& folder) {
  std::error_code failure;
  const bool empty = fs::is_empty(folder, failure);
  return !failure && !empty;
}

/// An export that was made is not made again; one that the run still owes stays, with its format, which is
/// also that of another --export said now.
void settle_export(const Layer& said, Layer& layer) {
  const auto made = layer.find("export");
  if (made != layer.end() && is_filled(made->second.value)) layer.erase(made);
  const auto exports = [](const Layer& l) {
    const auto found = l.find("export");
    return found != l.end() && !found->second.value.empty();
  };
  if (!exports(layer) && !exports(said)) layer.erase("export-dtype");
}

/// What the run said when it began: all but where its weights came from, where it lay, what it replaced, the
/// export that it has made and the steps that it traced.
Layer layer_of_run(const OptionTable& table, const fs::path& resume, const Layer& said,
                   Violations& unreadable, std::vector<std::string>& gone) {
  const fs::path run = run_of(resume);
  const fs::path config = run / "train.conf";
  std::error_code ignored;
  if (!fs::exists(config, ignored)) return {};
  std::vector<std::string> of_run;
  Layer layer = table.file(config, unreadable, &of_run);
  for (const std::string& line : of_run)  // but of what is said anew
    if (!said.contains(line.substr(0, line.find(' ')))) gone.push_back(line);
  layer.erase("model");
  layer.erase("resume");
  layer.erase("overwrite");
  layer.erase("trace");
  layer.erase("trace-steps");
  layer.erase("allow-missing");
  if (said.contains("steps")) layer.erase("epochs");
  if (said.contains("run")) {  // the other run's recording stays its own
    layer.erase("record-routing");
    layer.erase("record-steps");
  }
  settle_export(said, layer);
  layer["run"] = {run.string(), "--resume"};
  return layer;
}

/// --resume, --model and the shape are three answers to where the model comes from: what the command line
/// answers replaces what a file answered.
void prefer_answer(const Layer& command_line, Layer& file) {
  if (command_line.contains("resume")) {
    file.erase("model");
    file.erase("allow-missing");
  }
  if (!command_line.contains("model")) return;
  file.erase("resume");
  for (const std::string& name : shape_option_names()) file.erase(name);
}

Layer all_layers(const OptionTable& table, int argc, const char* const* argv, Violations& unreadable,
                 std::vector<std::string>& gone) {
  Layer layer = command_line(table, argc, argv, unreadable);
  unreadable.unless(!layer.contains("steps") || !layer.contains("epochs"),
                    "--steps and --epochs are two ends of one run; give one of them");
  if (layer.contains("config")) {
    Layer file = table.file(layer["config"].value, unreadable, nullptr);
    prefer_answer(layer, file);
    layer.merge(file);
  }
  const auto resume = layer.find("resume");
  if (resume != layer.end() && !resume->second.value.empty())
    layer.merge(layer_of_run(table, resume->second.value, layer, unreadable, gone));
  return layer;
}

void add_config_option(OptionTable& table, fs::path& config) {
  table.group("Settings from a file");
  table.add("config", "FILE", "lines `option = value`, # comments; the command line wins",
            "train.conf of another run, which says everything", config);
}

}  // namespace

TrainOptions parse_train_options(int argc, const char* const* argv) {
  TrainOptions options;
  OptionTable table = train_table(options);
  fs::path config;
  add_config_option(table, config);
  Violations unreadable;
  const Layer layer = all_layers(table, argc, argv, unreadable, options.gone);
  table.set(layer, unreadable);
  unreadable.throw_if_any();
  note_shape(layer, options.model);
  return options;
}

std::string train_help() {
  TrainOptions options;
  OptionTable table = train_table(options);
  fs::path config;
  add_config_option(table, config);
  return "moeloom train: train a mixture-of-experts language model\n\n"
         "  mpirun -n 2 moeloom train --ep 2 --data corpus.txt --steps 500\n\n"
         "On SIGTERM, SIGUSR1 or SIGINT to any rank all stop after the same step, with a checkpoint, and "
         "answer\n"
         "75; --resume goes on from it. A second SIGINT leaves at once. (mpirun hands SIGUSR1 on to its "
         "ranks.)\n" +
         help_of(table);
}

}  // namespace moeloom
