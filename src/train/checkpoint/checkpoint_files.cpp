#include "checkpoint/checkpoint_files.hpp"

#include "io/file_observer.hpp"
#include "io/manifest.hpp"
#include "io/new_folder.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <utility>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartialPrefix = ".checkpoint-";
constexpr std::string_view kPartialSuffix = ".partial";

bool is_partial(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with(kPartialPrefix) && name.ends_with(kPartialSuffix);
}

void throw_if(const std::error_code& failure, const std::string& action, const fs::path& path) {
  if (failure) throw_io_error("cannot " + action + " " + path.string(), failure.value());
}

/// Together with whoever removes it too, as a save that is going on and the look at what an earlier one left.
void remove_folder(const fs::path& folder) {
  std::error_code failure;
  do fs::remove_all(folder, failure);  // ends early where the other was faster by one file
  while (failure == std::errc::no_such_file_or_directory && fs::exists(folder));
  if (fs::exists(folder)) throw_if(failure, "remove", folder);
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  throw_if(failure, "rename " + from.string() + " to", to);
}

bool exchange([[maybe_unused]] const fs::path& one, [[maybe_unused]] const fs::path& other) {
#ifdef RENAME_EXCHANGE
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;  // musl before 1.2.6
#endif
}

/// Where the filesystem cannot exchange two names at once, the old folder goes first.
void replace(const fs::path& partial, const fs::path& checkpoint) {
  if (!exchange(partial, checkpoint)) {
    fs::path old = partial;
    old.replace_filename(partial.stem().string() + ".old" + std::string(kPartialSuffix));
    rename_folder(checkpoint, old);
    rename_folder(partial, checkpoint);
    return remove_folder(old);
  }
  remove_folder(partial);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failure;
  for (fs::directory_iterator i(folder, failure), end; !failure && i != end; i.increment(failure))
    entries.push_back(i->path());
  if (failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory) return {};
  throw_if(failure, "list", folder);
  return entries;
}

bool is_model(const fs::path& folder) {
  return fs::exists(folder / kConfigFile) &&
         (fs::exists(folder / kWeightsFile) || fs::exists(folder / kWeightsIndexFile));
}

bool has_adapter(const fs::path& folder) {
  return fs::exists(folder / kAdapterConfigFile) && fs::exists(folder / kAdapterFile);
}

/// Made by another program, as HF's Trainer: a model, and nothing of ours beside it.
bool is_plain_model(const fs::path& folder) {
  return is_model(folder) && !fs::exists(folder / kMomentsFile) && !fs::exists(folder / kManifestFile);
}

}  // namespace

std::optional<Index> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  Index step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc() && stop == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::string missing_files(const fs::path& folder) {
  std::string missing;
  const auto need = [&](bool there, const std::string& name) {
    if (!there) missing += (missing.empty() ? "has no " : ", no ") + name;
  };
  if (holds_adapter(folder)) {
    need(fs::exists(folder / kAdapterFile), kAdapterFile);
  } else {
    need(fs::exists(folder / kConfigFile), kConfigFile);
    need(fs::exists(folder / kWeightsFile) || fs::exists(folder / kWeightsIndexFile), kWeightsFile);
  }
  if (!step_of(folder) || is_plain_model(folder)) return missing;
  need(fs::exists(folder / kMomentsFile), kMomentsFile);
  need(fs::exists(folder / kStateFile), kStateFile);
  return missing;
}

std::vector<fs::path> torn_checkpoints_of(const fs::path& run) {
  std::vector<fs::path> torn;
  for (const fs::path& entry : entries_of(run))
    if (step_of(entry) && fs::is_directory(entry) && !is_checkpoint(entry) && !is_plain_model(entry))
      torn.push_back(entry);
  return torn;
}

std::vector<fs::path> candidates_in(const fs::path& run) {
  std::vector<fs::path> candidates = checkpoints_of(run);
  for (const fs::path& torn : torn_checkpoints_of(run)) candidates.push_back(torn);
  std::ranges::sort(candidates, std::greater(), [](const fs::path& path) { return *step_of(path); });
  return candidates;
}

fs::path checkpoint_path(const fs::path& run, Index step) {
  return run / (std::string(kPrefix) + std::to_string(step));
}

fs::path partial_path(const fs::path& run, Index step) {
  return run / (std::string(kPartialPrefix) + std::to_string(step) + std::string(kPartialSuffix));
}

void begin_partial(const fs::path& run, Index step) {
  std::error_code failure;
  if (fs::create_directories(run, failure))
    if (const fs::path parent = fs::absolute(run).parent_path(); !failure) sync_folder(parent);
  throw_if(failure, "make the folder", run);
  remove_partial_checkpoints(run);
  const fs::path partial = partial_path(run, step);
  fs::create_directory(partial, failure);
  throw_if(failure, "make the folder", partial);
}

void publish_partial(const fs::path& run, Index step) {
  const fs::path partial = partial_path(run, step);
  const fs::path checkpoint = checkpoint_path(run, step);
  sync_folder(partial);
  observed_bytes(FileStage::kRename, partial);
  if (fs::exists(checkpoint))
    replace(partial, checkpoint);
  else
    rename_folder(partial, checkpoint);
  sync_folder(run);
}

void discard_partial(const fs::path& run, Index step) noexcept {
  std::error_code ignored;
  fs::remove_all(partial_path(run, step), ignored);
}

bool is_checkpoint(const fs::path& folder) {
  return (is_model(folder) || has_adapter(folder)) && fs::exists(folder / kMomentsFile) &&
         fs::exists(folder / kStateFile);
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::vector<std::pair<Index, fs::path>> found;
  for (const fs::path& entry : entries_of(run))
    if (const auto step = step_of(entry); step && is_checkpoint(entry)) found.emplace_back(*step, entry);
  std::ranges::sort(found);
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path resolve_checkpoint(const fs::path& path) {
  if (!fs::exists(path)) throw IoError(path.string() + ": no such run or checkpoint");
  if (!fs::is_directory(path)) throw IoError(path.string() + ": expected a folder, found a file");
  if (const std::vector<fs::path> checkpoints = checkpoints_of(path); !checkpoints.empty())
    return checkpoints.back();
  if (is_model(path) || has_adapter(path)) return path;
  throw IoError(path.string() + ": holds neither a complete checkpoint-<step> nor config.json with " +
                kWeightsFile + " or " + kWeightsIndexFile + ", nor an adapter");
}

void write_config(const ModelConfig& config, DType weights, const fs::path& folder) {
  if (config.adapter)
    adapter_document(config).write(folder / kAdapterConfigFile);
  else
    config.to_document(weights).write(folder / kConfigFile);
}

std::vector<fs::path> old_checkpoints(const fs::path& run, Index keep, Index written) {
  if (keep <= 0) return {};
  std::vector<fs::path> others = checkpoints_of(run);
  std::erase_if(others, [&](const fs::path& checkpoint) { return step_of(checkpoint) == written; });
  const auto kept = std::min(others.size(), static_cast<std::size_t>(keep - 1));
  others.resize(others.size() - kept);
  return others;
}

void remove_checkpoints(const std::vector<fs::path>& checkpoints) {
  for (const fs::path& checkpoint : checkpoints) {
    const fs::path partial = partial_path(checkpoint.parent_path(), *step_of(checkpoint));
    rename_folder(checkpoint, partial);
    remove_folder(partial);
  }
}

std::vector<fs::path> remove_checkpoints_after(const fs::path& run, Index step) {
  std::vector<fs::path> later = candidates_in(run);
  std::erase_if(later, [&](const fs::path& checkpoint) { return *step_of(checkpoint) <= step; });
  // The newest first: whenever this stops, the newest that is left belongs to what is left.
  remove_checkpoints(later);
  return later;
}

void set_aside(const fs::path& checkpoint) {
  fs::path aside = checkpoint;
  aside.replace_filename(kDamagedPrefix + checkpoint.filename().string());
  remove_folder(aside);
  rename_folder(checkpoint, aside);
}

std::vector<fs::path> remove_partial_checkpoints(const fs::path& run) {
  std::vector<fs::path> removed;
  for (const fs::path& entry : entries_of(run)) {
    if (!is_partial(entry)) continue;
    remove_folder(entry);
    removed.push_back(entry);
  }
  return removed;
}

}  // namespace moeloom
