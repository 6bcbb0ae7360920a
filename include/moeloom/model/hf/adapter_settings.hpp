// What an adapter is trained with, in PEFT's terms (adapter_config.json).
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"
#include "moeloom/tensor/stored_rows.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

/// How A begins; B begins as zeros. PEFT's init_lora_weights true and "gaussian".
enum class AdapterInit { kKaiming, kGaussian };

/// What rank_pattern and alpha_pattern say of a module.
struct OwnRank {
  Index rank;
  double alpha;
};

struct AdapterSettings {
  Index rank = 16;               // r
  double alpha = 32;             // lora_alpha
  bool rank_stabilised = false;  // use_rslora: alpha / sqrt(r)
  double dropout = 0;            // lora_dropout: share of its inputs that training leaves out
  AdapterInit init = AdapterInit::kKaiming;
  /// What was asked for: all, attention, mlp, experts, shared, router, or patterns of modules' names.
  NamePatterns targets = {"attention", "experts"};
  /// Which modules of the model's files that means; resolve_adapter() (adapter.hpp) says it.
  std::set<std::string> modules = {};
  /// Of those that do not have the r and lora_alpha of all.
  std::map<std::string, OwnRank> own = {};
  /// How the adapter calls the model's modules and keeps its experts, where the model's folder does
  /// otherwise.
  std::optional<CheckpointNames> names = {};
  /// Factors of stacks have in and out exchanged (adapter.hpp).
  bool turned_stacks = false;
  /// What the file calls tensors that it does not call as PEFT does.
  std::map<std::string, std::string> tensors = {};
  std::filesystem::path base = {};  // folder of the model that it adds to
  /// Of how its files were read, where that may be another thing than their writer meant.
  std::vector<std::string> remarks = {};
  /// How the weights of its products rest beside the adapter: resting_storage() (adapter.hpp).
  Storage base_stored = Storage::kFp32;

  /// s: what A and B are multiplied with.
  double scale() const { return scale_of({rank, alpha}); }
  double scale_of(const OwnRank& of_module) const;
  OwnRank of(const std::string& module) const;
  const std::string& in_file(const std::string& tensor) const;
};

}  // namespace moeloom
