#include "cli/environment.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "fields/fault.hpp"
#include "fields/option_values.hpp"
#include "open/processors.hpp"

namespace moeloom {
namespace {

std::string lowered(std::string_view text) {
  std::string word = trimmed(std::string(text));
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

/// 0, 1, auto, force, and what else means 0 or 1.
std::optional<GmmRequest> gmm_from_text(std::string_view text) {
  if (const auto on = boolean_from_text(text)) return *on ? GmmRequest::kUpstreamRule : GmmRequest::kNever;
  return gmm_request_from_text(text);
}

/// Upstream's own switch has two answers: never, and its rule.
std::optional<GmmRequest> upstream_gmm_from_text(std::string_view text) {
  return boolean_from_text(text) ? gmm_from_text(text) : std::nullopt;
}

/// "4", or "4,2": teams inside teams, of which the program has none.
std::optional<Index> threads_from_text(std::string_view text) {
  std::optional<Index> threads;
  try {
    read_value(split(std::string(text), ',').front(), threads);
  } catch (const BadValue&) {
    return std::nullopt;
  }
  return threads && *threads >= 1 && *threads <= kMostThreads ? threads : std::nullopt;
}

std::optional<Index> nodes_from_text(std::string_view text) {
  return text.find(',') == text.npos ? threads_from_text(text) : std::nullopt;
}

std::optional<std::string> fault_text(std::string_view text) {
  return faults_from_text(text) ? std::optional<std::string>(text) : std::nullopt;
}

/// Reads variables and keeps what was given and what was wrong.
class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  template <typename T>
  std::optional<T> read(const std::string& name, std::string_view valid,
                        std::optional<T> (*from_text)(std::string_view)) {
    const std::optional<std::string> text = lookup_(name);
    if (!text || trimmed(*text).empty()) return std::nullopt;
    const std::optional<T> value = from_text(lowered(*text));
    if (value)
      given.push_back(name + "=" + lowered(*text));
    else
      violations.add(name + " = \"" + *text + "\" is not valid; valid: " + std::string(valid));
    return value;
  }

  /// The first that is set; both if they agree.
  template <typename T>
  std::optional<T> agreed(const std::string& name, std::optional<T> value, const std::string& alias,
                          std::optional<T> alias_value) {
    if (value && alias_value && *value != *alias_value)
      violations.add(name + " and its alias " + alias + " disagree (" + given[given.size() - 2] + ", " +
                     given.back() + "); unset one of them");
    return value ? value : alias_value;
  }

  bool boolean(const std::string& name, const std::string& alias) {
    const auto value = read(name, kBooleanTexts, boolean_from_text);
    const auto alias_value = read(alias, kBooleanTexts, boolean_from_text);
    return agreed(name, value, alias, alias_value).value_or(true);
  }

  std::vector<std::string> given;
  Violations violations;

 private:
  const EnvironmentLookup& lookup_;
};

std::string given_as(const RunFlags& flags, std::string_view suffix) {
  for (const std::string& text : flags.given)
    if (text.substr(0, text.find('=')).ends_with(suffix)) return text;
  return {};
}

/// As the XDG base directory specification says: what is not absolute counts as unset.
std::filesystem::path cache_folder(const EnvironmentLookup& lookup) {
  const std::filesystem::path chosen = lookup("XDG_CACHE_HOME").value_or("");
  if (chosen.is_absolute()) return chosen;
  const std::filesystem::path home = lookup("HOME").value_or("");
  return home.is_absolute() ? home / ".cache" : std::filesystem::path();
}

/// With which the text begins; what no int holds is the nearest that one does.
Index number_in_front(const char* text) {
  return std::clamp<Index>(std::strtoll(text, nullptr, 10), std::numeric_limits<int>::min(),
                           std::numeric_limits<int>::max());
}

std::optional<Index> first_number(const EnvironmentLookup& lookup, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::optional<std::string> text = lookup(name);
    if (text && !text->empty()) return number_in_front(text->c_str());
  }
  return std::nullopt;
}

/// Of one node, in a list as "2(x3),1": three nodes with two tasks, one with one.
Index slurm_tasks_of(Index node, const std::string& list) {
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t times = entry.find("(x");
    node -= times == std::string::npos ? 1 : number_in_front(entry.c_str() + times + 2);
    if (node < 0) return std::max<Index>(1, number_in_front(entry.c_str()));
  }
  return 1;
}

}  // namespace

RunFlags read_environment(const EnvironmentLookup& lookup) {
  Reader reader(lookup);
  RunFlags flags;
  flags.patch = reader.boolean("MOELOOM_PATCH", "TWINKLE_NPU_PATCH");
  flags.fused_ops = reader.boolean("MOELOOM_FUSED_OPS", "TWINKLE_NPU_FUSED_OPS");
  const bool measures = lowered(lookup("MOELOOM_GMM_PATCH").value_or("")) == "measure";
  if (measures)
    reader.violations.add(
        "MOELOOM_GMM_PATCH = measure is gone: auto decides by a rule, and `moeloom calibrate` measures");
  const auto gmm =
      measures ? std::nullopt : reader.read("MOELOOM_GMM_PATCH", kGmmRequestTexts, gmm_from_text);
  const auto alias = reader.read("TWINKLE_NPU_GMM_PATCH", kBooleanTexts, upstream_gmm_from_text);
  flags.gmm = reader.agreed("MOELOOM_GMM_PATCH", gmm, "TWINKLE_NPU_GMM_PATCH", alias);
  flags.bf16 =
      reader.read("MOELOOM_BF16", kBf16RequestTexts, bf16_request_from_text).value_or(Bf16Request::kBest);
  flags.pretended_nodes =
      reader.read("MOELOOM_PRETEND_NODES", "1 to " + std::to_string(kMostThreads), nodes_from_text)
          .value_or(0);
  flags.faults = reader.read("MOELOOM_FAULT", valid_faults(), fault_text).value_or("");
  flags.log_level = reader.read("MOELOOM_LOG", kLogLevelTexts, log_level_from_text).value_or(LogLevel::kInfo);
  flags.given = reader.given;
  std::erase_if(flags.given, [](const std::string& said) { return said.starts_with("MOELOOM_LOG="); });
  flags.threads = reader.read("OMP_NUM_THREADS", "1 to " + std::to_string(kMostThreads), threads_from_text);
  reader.violations.throw_if_any();
  flags.why_patch = given_as(flags, "_PATCH");
  flags.why_gmm = given_as(flags, "_GMM_PATCH");
  flags.cache_folder = cache_folder(lookup);
  return flags;
}

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

RunFlags read_environment() {
  return read_environment(own_variable);
}

Index launcher_rank(const EnvironmentLookup& lookup) {
  return first_number(lookup, {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}).value_or(0);
}

Index launcher_rank() {
  return launcher_rank(own_variable);
}

Index launcher_ranks(const EnvironmentLookup& lookup) {
  return first_number(lookup, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}).value_or(1);
}

Index launcher_ranks() {
  return launcher_ranks(own_variable);
}

Index launcher_node_rank() {
  return first_number(own_variable, {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
      .value_or(0);
}

Index launcher_node_ranks(const EnvironmentLookup& lookup) {
  if (const auto told = first_number(lookup, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})) return *told;
  const std::optional<std::string> each = lookup("SLURM_STEP_TASKS_PER_NODE");
  return each ? slurm_tasks_of(first_number(lookup, {"SLURM_NODEID"}).value_or(0), *each) : 1;
}

}  // namespace moeloom
