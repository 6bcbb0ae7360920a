// What an adapter is trained with, in PEFT's terms (adapter_config.json).
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/tensor/stored_rows.hpp"

#include <filesystem>
#include <set>
#include <string>

namespace moeloom {

/// How A begins; B begins as zeros. PEFT's init_lora_weights true and "gaussian".
enum class AdapterInit { kKaiming, kGaussian };

struct AdapterSettings {
  Index rank = 16;               // r
  double alpha = 32;             // lora_alpha
  bool rank_stabilised = false;  // use_rslora: alpha / sqrt(r)
  double dropout = 0;            // lora_dropout: share of its inputs that training leaves out
  AdapterInit init = AdapterInit::kKaiming;
  /// What was asked for: attention, mlp, experts, shared, router, or patterns of modules' names.
  NamePatterns targets = {"attention", "experts"};
  /// Which modules of the model's files that means; resolve_adapter() (adapter.hpp) says it.
  std::set<std::string> modules = {};
  std::filesystem::path base = {};  // folder of the model that it adds to
  /// How the weights of its products rest beside the adapter: resting_storage() (adapter.hpp).
  Storage base_stored = Storage::kFp32;

  /// s: what A and B are multiplied with.
  double scale() const;
};

}  // namespace moeloom
