// Where the settings of train come from: the command line, --config, and train.conf of the run that goes on.
#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "fields/option_groups.hpp"
#include "fields/overwritten.hpp"
#include "fields/resumed_options.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// --resume, --model and the shape are three answers to where the model comes from: what the command line
/// answers replaces what a file answered. So it is with --steps and --epochs, the end of a run.
void prefer_answer(const Layer& command_line, Layer& file) {
  if (command_line.contains("steps")) file.erase("epochs");  // --epochs counts more than steps anyway
  if (command_line.contains("resume")) {
    file.erase("model");
    file.erase("allow-missing");
  }
  if (!command_line.contains("model")) return;
  file.erase("resume");
  for (const std::string& name : shape_option_names()) file.erase(name);
}

/// train.conf of a run says `epochs = 0`, which leaves it to its steps.
void refuse_two_ends(const Layer& file, Violations& unreadable) {
  const auto steps = file.find("steps"), epochs = file.find("epochs");
  if (steps == file.end() || epochs == file.end() || value_in<double>(epochs->second.value) == 0) return;
  unreadable.add(steps->second.origin + " and " + epochs->second.origin +
                 " are two ends of one run; give one of them");
}

Layer all_layers(const OptionTable& table, int argc, const char* const* argv, Violations& unreadable,
                 std::vector<std::string>& gone) {
  Layer layer = command_line(table, argc, argv, unreadable);
  unreadable.unless(!layer.contains("steps") || !layer.contains("epochs"),
                    "--steps and --epochs are two ends of one run; give one of them");
  if (layer.contains("config")) {
    Layer file = table.file(layer["config"].value, unreadable, nullptr);
    refuse_two_ends(file, unreadable);
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
  for (const auto& [option, output] :
       {NamedPath{"record-routing", options.run.routing.record}, NamedPath{"trace", options.run.trace.file}})
    refuse_overwriting({option, output}, {{"config", config}}, unreadable);
  unreadable.throw_if_any();
  note_shape(layer, options.model);
  return options;
}

Help train_help() {
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
