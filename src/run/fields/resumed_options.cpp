#include "fields/resumed_options.hpp"

#include "moeloom/run/training.hpp"

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

}  // namespace

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
  layer["run"] = {run.string(), "`resume`"};
  return layer;
}

TrainOptions options_of_run(const fs::path& folder) {
  TrainOptions options;
  OptionTable table = train_table(options);
  Violations unreadable;
  Layer layer = {{"resume", {folder.string(), "`resume`"}}};
  Layer of_run = layer_of_run(table, folder, layer, unreadable, options.gone);
  unreadable.unless(!of_run.empty(), run_of(folder).string() + " has no train.conf: it is no run");
  layer.merge(of_run);
  table.set(layer, unreadable);
  unreadable.throw_if_any();
  note_shape(layer, options.model);
  return options;
}

}  // namespace moeloom
