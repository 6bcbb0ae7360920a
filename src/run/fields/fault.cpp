#include "fields/fault.hpp"

#include "io/manifest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

namespace moeloom {
namespace {

constexpr std::array<std::pair<std::string_view, FaultKind>, 9> kKinds = {
    {{"kill", FaultKind::kKill},
     {"stop", FaultKind::kStop},
     {"spin", FaultKind::kSpin},
     {"slow", FaultKind::kSlow},
     {"throw", FaultKind::kThrow},
     {"short-write", FaultKind::kShortWrite},
     {"enospc", FaultKind::kEnospc},
     {"nan", FaultKind::kNan},
     {"flip", FaultKind::kFlip}}};
constexpr std::array kOutsideSteps = {Activity::kLoading, Activity::kValidating, Activity::kSaving,
                                      Activity::kEnding};
constexpr std::array<std::string_view, 4> kStages = {"write", "fsync", "rename", "reserve"};  // of FileStage
static_assert(kStages.size() == static_cast<std::size_t>(FileStage::kReserve) + 1);
constexpr std::string_view kManifest = "manifest";  // its write, the last of a checkpoint

std::vector<std::string> phases() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.emplace_back(name_of(static_cast<Phase>(i)));
  return names;
}

std::vector<std::string> places() {
  std::vector<std::string> names = phases();
  for (const Activity activity : kOutsideSteps) names.emplace_back(name_of(activity));
  for (const std::string_view stage : kStages) names.emplace_back(stage);
  names.emplace_back(kManifest);
  return names;
}

std::optional<Index> number(std::string_view text) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream words{std::string(text)};
  for (std::string part; std::getline(words, part, separator);) parts.push_back(part);
  return parts;
}

std::optional<Fault> fault_from_text(std::string_view text) {
  const std::vector<std::string> parts = parts_of(text, ':');
  if (parts.size() < 4 || parts.size() > 5) return std::nullopt;
  const auto kind = std::ranges::find(kKinds, parts[0], [](const auto& each) { return each.first; });
  const std::optional<Index> rank = number(parts[1]), step = number(parts[2]);
  const std::optional<Index> layer = parts.size() == 5 ? number(parts[4]) : std::optional<Index>(-1);
  if (kind == kKinds.end() || !rank || !step || !layer) return std::nullopt;
  const auto known = kind->second == FaultKind::kNan ? phases() : places();
  if (std::ranges::count(known, parts[3]) == 0) return std::nullopt;
  return Fault{kind->second, *rank, *step, parts[3], *layer, std::string(text)};
}

/// N of a folder .checkpoint-N.partial.
std::optional<Index> step_of_partial(const std::string& folder) {
  constexpr std::string_view kBegin = ".checkpoint-", kEnd = ".partial";
  if (!folder.starts_with(kBegin) || !folder.ends_with(kEnd)) return std::nullopt;
  return number(std::string_view(folder).substr(kBegin.size(), folder.size() - kBegin.size() - kEnd.size()));
}

}  // namespace

bool Fault::strikes(const Position& position, Index next_step) const {
  if (position.activity != Activity::kTraining)
    return name_of(position.activity) == where && next_step == step;
  return position.step == step && name_of(position.phase) == where && (layer < 0 || position.layer == layer);
}

bool Fault::strikes(FileStage stage, const std::filesystem::path& path) const {
  const std::string name = path.filename().string(), folder = path.parent_path().filename().string();
  if (step_of_partial(name) != step && step_of_partial(folder) != step) return false;
  if (where == kManifest) return stage == FileStage::kWrite && name.starts_with(kManifestFile);
  if (stage == FileStage::kRename && step_of_partial(name) != step) return false;  // of a file in it
  return where == kStages[static_cast<std::size_t>(stage)];
}

std::string valid_faults() {
  std::string text = "KIND:RANK:STEP:WHERE[:LAYER], several separated by commas, KIND one of";
  for (const auto& [word, kind] : kKinds) text += " " + std::string(word);
  text += ", WHERE one of";
  for (const std::string& place : places()) text += " " + place;
  return text;
}

std::optional<std::vector<Fault>> faults_from_text(std::string_view text) {
  std::vector<Fault> faults;
  for (const std::string& part : parts_of(text, ',')) {
    const std::optional<Fault> fault = fault_from_text(part);
    if (!fault) return std::nullopt;
    faults.push_back(*fault);
  }
  return faults.empty() ? std::nullopt : std::optional(faults);
}

}  // namespace moeloom
