// What an adapter's folder says: its numbers, and which modules of the model its tensors are of.
#include "model/hf/family.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "hf/adapter/adapter_keys.hpp"
#include "hf/adapter/adapter_model.hpp"
#include "hf/adapter/adapter_patterns.hpp"
#include "hf/adapter/adapter_targets.hpp"
#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListedTexts = 20;
constexpr Index kLargestRank = Index{1} << 16;

/// The names of parameters that have factors of their own, as PEFT matches them.
class TargetParameters {
 public:
  explicit TargetParameters(const Document& document) {
    if (document.is_list("target_parameters")) names_ = document.texts("target_parameters");
  }
  bool contain(const std::string& parameter) const {
    return std::ranges::any_of(names_, [&](const std::string& name) {
      return parameter == name || parameter.ends_with("." + name);
    });
  }

 private:
  std::vector<std::string> names_;
};

/// Reads one adapter.
class Reader {
 public:
  Reader(const Document& document, const TensorShapes& tensors, const ModelConfig& config,
         const std::set<std::string>& ignored)
      : found_(adapter_names(tensors, config.names.prefix.body)),
        model_(model_named_by(found_, config)),
        parameters_(document),
        modules_(document, config.model_type, ignored),
        document_(document),
        config_(config) {}

  AdapterSettings read(DoubtfulKeys& doubtful, Violations& violations);

 private:
  std::string module_at(const std::string& path, const std::string& in_peft) const;
  std::string peft_key(const std::string& path, const std::string& module, const std::string& in_peft) const;
  std::optional<bool> is_turned(const Place& place, const NamedFactors& factors) const;
  void read_stacks(Violations& violations);
  void read_own(Violations& violations);
  void check_places(Violations& violations) const;
  void check_targets(DoubtfulKeys& doubtful) const;
  std::string name_in_peft(const std::string& module) const;
  void remark_absent();

  AdapterNames found_;
  NamedModel model_;
  TargetParameters parameters_;
  AdapterTargets modules_;
  const Document& document_;
  const ModelConfig& config_;
  AdapterSettings settings_;
  std::map<std::string, std::string> paths_;  // by module
};

/// Of a block's stacks the one that these factors are of: of two with factors the first has the inner path.
/// Empty: "target_parameters" does not say. A path without a place is a module that the model does not have.
std::string Reader::module_at(const std::string& path, const std::string& in_peft) const {
  const auto [begin, end] = model_.places.equal_range(path);
  if (begin == end) return path;
  if (std::next(begin) == end && begin->second.module == path) return path;
  const bool is_inner = path.ends_with(kInnerPath);
  const std::string block = is_inner ? path.substr(0, path.size() - kInnerPath.size()) : path;
  std::set<std::string> stacks;
  for (auto place = begin; place != end; ++place)
    if (parameters_.contain(peft_key(path, place->second.module, in_peft)))
      stacks.insert(place->second.module);
  const bool has_both = found_.paths.contains(block) && found_.paths.contains(block + kInnerPath);
  if (stacks.empty() || has_both != (stacks.size() > 1)) return {};
  for (const std::string& stack : stacks)
    if (path_in_adapter(stack, stacks) == path) return stack;
  return {};
}

/// The name that PEFT matches with its patterns: a parameter's where that is what has the factors.
std::string Reader::peft_key(const std::string& path, const std::string& module,
                             const std::string& in_peft) const {
  if (module != path) {
    const std::string block =
        in_peft.ends_with(kInnerPath) ? in_peft.substr(0, in_peft.size() - kInnerPath.size()) : in_peft;
    return block + module.substr(module.rfind('.'));
  }
  return parameters_.contain(in_peft + ".weight") ? in_peft + ".weight" : in_peft;
}

/// Whether factors of a stack have in and out exchanged; none where their shapes do not tell.
std::optional<bool> Reader::is_turned(const Place& place, const NamedFactors& factors) const {
  const Index in = place.base->cols, out = place.rows;
  if (in == out || factors.a.size() != 2 || factors.b.size() != 2) return std::nullopt;
  if (factors.a[1] == in && factors.b[0] == out) return false;
  if (factors.a[1] == out && factors.b[0] == in) return true;
  return std::nullopt;
}

/// "0.19.1" and later, also "1.0" and "0.20.0.dev0".
bool is_since_0_19_1(const std::string& version) {
  std::array<int, 3> parts{};
  std::istringstream text(version);
  char dot = 0;
  for (int& part : parts)
    if (!(text >> part) || !(text >> dot)) break;
  return parts >= std::array{0, 19, 1};
}

/// What all stacks tell together, or the version of PEFT where each has as many rows as columns.
void Reader::read_stacks(Violations& violations) {
  std::string unclear;
  for (const auto& [module, path] : paths_) {
    const auto [begin, end] = model_.places.equal_range(path);
    for (auto place = begin; place != end; ++place) {
      if (place->second.module != module || !place->second.is_stack) continue;
      if (const auto turned = is_turned(place->second, found_.paths.at(path))) {
        settings_.turned_stacks = *turned;
        return;
      }
      if (place->second.base->cols == place->second.rows) unclear = module;
    }
  }
  if (unclear.empty()) return;
  const MoeRule& rule = *config_.family().moe;
  const bool is_new = is_since_0_19_1(document_.text_or("peft_version", ""));
  // PEFT 0.19.1 has all as [E, out, in], but for a class that says otherwise, as transformers 5 does of
  // gpt_oss; what Qwen3-VL's class has differs with the version of transformers.
  const bool differs = rule.transposed && !rule.turned_factors;
  settings_.turned_stacks = rule.turned_factors;
  violations.unless(is_new != differs, std::string("\"peft_version\" is ") + (differs ? "" : "not ") +
                                           "0.19.1 or later: the factors of " + unclear +
                                           ", which has as many rows as columns, could be either way round");
}

void Reader::read_own(Violations& violations) {
  const AdapterPatterns ranks(document_, "rank_pattern"), alphas(document_, "alpha_pattern");
  for (const auto& [module, path] : paths_) {
    const std::string key = peft_key(path, module, found_.paths.at(path).in_peft);
    const double rank = ranks.of(key, static_cast<double>(settings_.rank));
    const double alpha = alphas.of(key, settings_.alpha);
    if (rank == static_cast<double>(settings_.rank) && alpha == settings_.alpha) continue;
    const bool is_rank = rank >= 1 && rank <= static_cast<double>(kLargestRank) && rank == std::floor(rank);
    violations.unless(is_rank, "\"rank_pattern\" of " + module + " is no rank between 1 and " +
                                   std::to_string(kLargestRank));
    violations.unless_positive("\"alpha_pattern\" of " + module, alpha);
    if (is_rank) settings_.own[module] = {static_cast<Index>(rank), alpha};
  }
}

/// Weights of the model that no adapter adds to here, as the gate of a shared expert.
void Reader::check_places(Violations& violations) const {
  std::set<std::string> weights;
  for (const ParameterSpec& spec : model_.specs)
    for (const HfSlice& slice : spec.slices) weights.insert(slice.name);
  std::vector<std::string> without;
  for (const auto& [path, factors] : found_.paths)
    if (!model_.places.contains(path) && weights.contains(path + ".weight")) without.push_back(path);
  if (!without.empty())
    violations.add(std::string(kAdapterFile) + " has factors of " + std::to_string(without.size()) +
                   " modules that can have none here, the first of them " + without.front() + "; " +
                   kMergeFirst);
}

/// PEFT would add nothing to modules that the document leaves out, whatever the file holds. Which parameters
/// have factors is said by target_parameters alone.
void Reader::check_targets(DoubtfulKeys& doubtful) const {
  std::map<std::string, std::vector<std::string>> left_out;  // by key
  for (const auto& [module, path] : paths_) {
    const std::string& in_peft = found_.paths.at(path).in_peft;
    if (module != path || !model_.places.contains(path) || parameters_.contain(in_peft + ".weight")) continue;
    const auto key = modules_.left_out_by(in_peft);
    if (key && modules_.left_out_by(path)) left_out[*key].push_back(module);
  }
  for (const auto& [key, modules] : left_out)
    doubtful.refuse(key, "by it PEFT leaves out " + std::to_string(modules.size()) +
                             " modules that the file has factors of, the first of them " + modules.front());
}

/// What the class that was trained calls a module, as the names in the file tell.
std::string Reader::name_in_peft(const std::string& module) const {
  const std::string& body = config_.names.prefix.body;
  if (found_.paths.empty() || !module.starts_with(body)) return module;
  const auto& [path, factors] = *found_.paths.begin();
  const std::size_t own = factors.in_peft.size() + body.size() - path.size();
  return factors.in_peft.substr(0, own) + module.substr(body.size());
}

/// Modules that the document names and the file has no factors for; those of some experts modules_left_out()
/// counts.
void Reader::remark_absent() {
  std::set<std::string> absent;
  for (const ParameterSpec& spec : model_.specs) {
    if (adapted_kind(spec).empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      if (std::ranges::any_of(part.modules, [&](const auto& module) { return paths_.contains(module); }))
        continue;
      for (const std::string& module : part.modules) {
        const std::string name = name_in_peft(module);
        const bool is_meant = part.stack ? parameters_.contain(name) : modules_.contain(name);
        if (is_meant || parameters_.contain(name + ".weight")) absent.insert(module);
      }
    }
  }
  if (absent.empty()) return;
  settings_.remarks.push_back(std::string(kAdapterConfigFile) + " names " + std::to_string(absent.size()) +
                              " modules that " + kAdapterFile + " has no factors for, the first of them " +
                              *absent.begin() + ": nothing is added to them");
}

AdapterSettings Reader::read(DoubtfulKeys& doubtful, Violations& violations) {
  settings_.rank = document_.integer("r");
  settings_.alpha = document_.number("lora_alpha");
  settings_.rank_stabilised = document_.boolean_or("use_rslora", false);
  settings_.base = document_.text_or("base_model_name_or_path", "");
  settings_.targets.clear();
  settings_.dropout = document_.number_or("lora_dropout", 0.0);
  violations.unless_between("r", settings_.rank, 1, kLargestRank);
  violations.unless_positive("lora_alpha", settings_.alpha);
  violations.unless_below_one("lora_dropout", settings_.dropout);
  // A key that is refused explains tensors that have no place.
  if (violations.empty() && doubtful.empty()) violations.add(stray_violations(found_));
  settings_.names = model_.names;
  settings_.tensors = found_.tensors;
  for (const auto& [path, factors] : found_.paths) {
    const std::string module = module_at(path, factors.in_peft);
    if (!module.empty()) paths_[module] = path;
    violations.unless(!module.empty(), "the factors of " + path +
                                           " could be those of several stacks of experts that "
                                           "\"target_parameters\" names, or of none");
  }
  for (const auto& [module, path] : paths_) settings_.modules.insert(module);
  check_targets(doubtful);
  check_places(violations);
  if (violations.empty() && settings_.modules.empty())
    violations.add(std::string(kAdapterFile) + " holds no factors");
  read_stacks(violations);
  read_own(violations);
  if (violations.empty()) remark_absent();
  return std::move(settings_);
}

bool has_biases(const ModelConfig& config) {
  return std::ranges::any_of(parameters_of_adapter(config), [](const ParameterSpec& spec) {
    return std::ranges::any_of(spec.slices, [](const auto& slice) { return slice.name.ends_with(".bias"); });
  });
}

}  // namespace

AdapterSettings adapter_settings(const Document& document, const TensorShapes& tensors,
                                 const ModelConfig& config, const std::string& file,
                                 const std::set<std::string>& ignored) {
  Violations violations;
  DoubtfulKeys doubtful(ignored);
  check_adapter_keys(document, tensors, has_biases(config), doubtful, violations);
  AdapterSettings settings;
  try {
    settings = Reader(document, tensors, config, ignored).read(doubtful, violations);
  } catch (const ConfigError& error) {
    violations.add(error.violations());
  }
  doubtful.add_to(violations);
  if (violations.empty()) return settings;
  std::vector<std::string> texts = violations.list();
  if (texts.size() > kListedTexts) texts.resize(kListedTexts);
  for (std::string& text : texts) text = file + ": " + text;
  throw ConfigError(std::move(texts), Cause::kData);
}

fs::path base_of_adapter(const fs::path& folder) {
  return Document::read(folder / kAdapterConfigFile).text_or("base_model_name_or_path", "");
}

namespace {

/// PEFT saves an adapter that has a name of its own one folder below, and before 0.5 wrote torch's files.
void require_files(const fs::path& folder) {
  constexpr const char* kOfTorch = "adapter_model.bin";
  if (!holds_adapter(folder)) {
    std::string below;
    if (fs::is_directory(folder))
      for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (holds_adapter(entry.path())) below = entry.path().string();
    throw ConfigError({folder.string() + " has no " + kAdapterConfigFile +
                       (below.empty() ? "" : "; the adapter is in " + below + ": name that folder")});
  }
  if (!fs::exists(folder / kAdapterFile) && fs::exists(folder / kOfTorch))
    throw IoError(folder.string() + " holds " + kOfTorch +
                  ", but only safetensors are read: load it with "
                  "PEFT and save_pretrained() it again, which writes " +
                  kAdapterFile);
}

}  // namespace

AdapterSettings read_adapter_settings(const fs::path& folder, const ModelConfig& config,
                                      const std::set<std::string>& ignored) {
  require_files(folder);
  const fs::path path = folder / kAdapterConfigFile;
  const SafetensorsFile file(folder / kAdapterFile);
  TensorShapes tensors;
  for (const auto& [name, info] : file.tensors()) tensors[name] = info.shape;
  return adapter_settings(Document::read(path), tensors, config, path.string(), ignored);
}

}  // namespace moeloom
