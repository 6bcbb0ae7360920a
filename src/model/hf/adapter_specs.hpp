// The parameters of an adapter, made from those that it adds to.
#pragma once

#include "moeloom/model/hf/adapter_settings.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hf/parameter_parts.hpp"

namespace moeloom {

/// A weight's rows that are one module of the file, in each group (expert) of the parameter.
struct AdaptedRows {
  Index row = 0;  // the first, in a group
  Index rows = 0;
  std::vector<std::string> modules;  // by group
  /// Of all experts in one tensor, which is then called the module of each: how it keeps them.
  std::optional<SliceLayout> stack = {};
};

/// The modules that a parameter is made of; none if it is no weight of a product, or if rows of one module
/// lie between those of another.
std::vector<AdaptedRows> adapted_rows(const ParameterSpec& spec);
/// attention, mlp, experts, shared or router; empty: a weight that no adapter adds to.
std::string adapted_kind(const ParameterSpec& spec);

/// Whether a weight may be stored in halves: it is one of a large product, or a table of words.
bool may_be_half(const ParameterSpec& spec);

/// How an adapter's file calls a module: by its name, but of two stacks of one block of experts (gate_up_proj
/// and down_proj of "mlp.experts") by the block's, the first one with .base_layer behind it, as PEFT nests
/// them.
std::string path_in_adapter(const std::string& module, const std::set<std::string>& adapted);
/// Names of factors: kPeftPrefix, the path, and one of these.
inline const std::string kPeftPrefix = "base_model.model.";
inline const std::string kFactorA = ".lora_A.weight", kFactorB = ".lora_B.weight";

/// Which expert's factors, of how many in the tensor; `alternates`: the first half of B's rows with the
/// second.
struct InStack {
  Index expert = 0, experts = 1;
  bool alternates = false;
};
/// Where an adapter's file has a factor [rows, cols]: as a tensor of its own, or in a stack's (adapter.hpp).
HfSlice factor_slice(const std::string& path, bool is_a, Index rows, Index cols,
                     const std::optional<InStack>& stack = {});
/// The factors of one part of a weight, A and then B.
Specs factors_of(const ParameterSpec& base, const AdaptedRows& part, Index number,
                 const AdapterSettings& settings);

/// Freezes all that is there and adds both factors of each module that the settings name.
void add_adapter(const AdapterSettings& settings, Specs& specs);

}  // namespace moeloom
