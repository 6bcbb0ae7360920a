#include "open/run_folder.hpp"

#include "io/new_folder.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "report/page.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <fstream>

#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Without links, dots and a slash at the end, so that two names of one folder are equal.
fs::path real_path(const fs::path& path) {
  std::error_code failure;
  const fs::path found = fs::weakly_canonical(path, failure);
  return failure ? path : found;
}

void remove_old_run(const fs::path& folder) {
  remove_checkpoints_after(folder, -1);
  for (const char* name :
       {"metrics.jsonl", kReportFile, "train.log", "train.conf", "stall.json", "restarts.jsonl"})
    fs::remove(folder / name);
  // Of the starts before: launch/go-on.sh's mesh, where ranks ended, and what they answered.
  for (const char* name : {"elastic", "ended", "stall"}) fs::remove_all(folder / name);
}

/// Before the first step, so that the last one's result has a place.
void check_export_folder(const fs::path& folder, const fs::path& run) {
  if (!folder.empty() && real_path(folder) == real_path(run))
    throw ConfigError({"`export` " + folder.string() + " is the run's own folder; choose another"});
  if (folder.empty()) return;
  try {
    require_place_for_folder(folder);
  } catch (const ConfigError& error) {
    throw ConfigError({std::string("`export` ") + error.what()});
  }
}

}  // namespace

bool goes_on_in_its_folder(const RunOptions& run) {
  if (run.resume.empty()) return false;
  const fs::path folder = real_path(run.folder);
  const fs::path resumed = real_path(run.resume);
  return resumed == folder || (resumed.parent_path() == folder && is_checkpoint(resumed));
}

bool lacks_its_end(const RunOptions& run) {
  if (!goes_on_in_its_folder(run)) return false;
  std::ifstream page(run.folder / kReportFile);
  std::string beginning;
  for (std::string line; beginning.size() < kPageBeginning && std::getline(page, line);) beginning += line;
  return beginning.empty() || shows_running(beginning);
}

void check_run_folder(const RunOptions& run) {
  check_export_folder(run.export_folder, run.folder);
  if (goes_on_in_its_folder(run)) {
    if (run.overwrite)
      throw ConfigError({"`overwrite` would remove " + run.folder.string() +
                         ", which `resume` goes on from; remove `overwrite`, or choose another `run`"});
    return;
  }
  if (run.overwrite || !fs::exists(run.folder)) return;
  if (!fs::exists(run.folder / "metrics.jsonl") && checkpoints_of(run.folder).empty()) return;
  const std::string folder = run.folder.string();
  throw ConfigError(
      {folder + " holds a run already" +
       (run.resume.empty() ? "; go on with it by `resume` " + folder + ", "
                           : " that `resume` " + run.resume.string() + " does not go on with; ") +
       "choose another `run`, or replace it by `overwrite`"});
}

bool overwrites(const RunOptions& run, const fs::path& model) {
  return run.overwrite && is_checkpoint(model) && real_path(model).parent_path() == real_path(run.folder);
}

void make_run_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_io_error("cannot make the run folder " + folder.string(), error.value());
}

void begin_run_folder(const TrainOptions& options) {
  const fs::path& folder = options.run.folder;
  if (options.run.overwrite) remove_old_run(folder);
  replace_file(folder / "train.conf", resolved_config(options));
}

}  // namespace moeloom
