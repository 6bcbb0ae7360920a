// Which modules PEFT 0.20 gives factors: target_modules, less exclude_modules, modules_to_save and what
// layers_to_transform leaves out (its check_target_module_exists).
#pragma once

#include "moeloom/io/document.hpp"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

/// Modules that a list names by the ends of their names, or a pattern as a whole.
class ModuleNames {
 public:
  ModuleNames() = default;
  explicit ModuleNames(std::vector<std::string> ends);
  static ModuleNames of_pattern(const std::string& pattern);
  /// None: it cannot be told here.
  std::optional<bool> contain(const std::string& module) const;

 private:
  std::function<bool(const std::string&)> contain_;
};

class AdapterTargets {
 public:
  /// model_type: for what PEFT takes where target_modules is null. Keys in `ignored` say nothing.
  AdapterTargets(const Document& document, const std::string& model_type,
                 const std::set<std::string>& ignored);
  /// The key for which a module has no factors in PEFT; none where it has, or where that cannot be told.
  std::optional<std::string> left_out_by(const std::string& module) const;
  /// Whether it surely has some.
  bool contain(const std::string& module) const;

 private:
  void read_layers(const Document& document, const std::set<std::string>& ignored);
  std::optional<bool> is_in_layers(const std::string& module) const;

  ModuleNames targets_;
  ModuleNames excluded_ = ModuleNames(std::vector<std::string>());
  std::vector<std::string> saved_;
  std::set<std::string> whole_names_;  // of which layers_to_transform leaves out none
  std::optional<std::set<std::string>> layers_;
  std::vector<ModuleNames> before_layers_;
};

}  // namespace moeloom
