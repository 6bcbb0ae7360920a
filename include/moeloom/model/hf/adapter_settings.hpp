// What a low-rank adapter (LoRA: Hu et al. 2021) is trained with, in PEFT's terms (adapter_config.json).
//
// A caller who asks for one sets what stands before `modules`; the rest the library fills in when it opens
// the model or reads an adapter's folder.
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

/// How A begins; B begins as zeros, so that the adapter begins as nothing. PEFT's init_lora_weights true and
/// "gaussian".
enum class AdapterInit { kKaiming, kGaussian };

/// What rank_pattern and alpha_pattern of a file say of one module.
struct OwnRank {
  Index rank;
  double alpha;
};

/// Names in the comments are PEFT's.
struct AdapterSettings {
  Index rank = 16;               // r
  double alpha = 32;             // lora_alpha
  bool rank_stabilised = false;  // use_rslora: alpha / sqrt(r)
  double dropout = 0;            // lora_dropout: share of its inputs that training leaves out
  AdapterInit init = AdapterInit::kKaiming;
  /// What is adapted: all, attention, mlp, experts, shared, router (those that the model has), or patterns of
  /// modules' names.
  NamePatterns targets = {"attention", "experts"};
  /// Which modules of the model's files that means.
  std::set<std::string> modules = {};
  /// Of modules with another r or lora_alpha than the rest.
  std::map<std::string, OwnRank> own = {};
  /// How the adapter calls the model's modules and keeps its experts, where the model's folder does
  /// otherwise.
  std::optional<CheckpointNames> names = {};
  /// The file's factors of stacked experts have in and out exchanged.
  bool turned_stacks = false;
  /// By PEFT's name, what the file calls tensors that it does not call as PEFT does.
  std::map<std::string, std::string> tensors = {};
  std::filesystem::path base = {};  // folder of the model that it is for
  /// How its files were read, where their writer may have meant something else; a line each.
  std::vector<std::string> remarks = {};
  /// What the model's own weights are kept in beside the adapter; not trained: what their files have.
  Storage base_stored = Storage::kFp32;

  /// s of y = W x + s B A x: alpha / r, or alpha / sqrt(r) where rank_stabilised.
  double scale() const { return scale_of({rank, alpha}); }
  double scale_of(const OwnRank& of_module) const;
  /// Rank and alpha of a module.
  OwnRank of(const std::string& module) const;
  /// The file's name of a tensor.
  const std::string& in_file(const std::string& tensor) const;
};

}  // namespace moeloom
