// The parameters of an adapter, made from those that it adds to.
#pragma once

#include "moeloom/model/hf/adapter_settings.hpp"
#include "moeloom/model/hf/config.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hf/parameters/parameter_parts.hpp"

namespace moeloom {

/// Rows of a part, the first of which is row `from` of the module.
struct MovedRows {
  Index row = 0, rows = 0, from = 0;
};

/// A weight's rows that are one module of the file, in each group (expert) of the parameter.
struct AdaptedRows {
  Index row = 0;  // the first, in a group
  Index rows = 0;
  std::vector<std::string> modules;  // by group
  /// Of all experts in one tensor, which is then called the module of each: how it keeps them.
  std::optional<SliceLayout> stack = {};
  /// Of a module that is no stack, all of its rows: a file may have them in another order.
  std::vector<MovedRows> order = {};
};

/// The modules that a parameter is made of; none if it is no weight of a product, or if rows of one module
/// lie between those of another.
std::vector<AdaptedRows> adapted_rows(const ParameterSpec& spec);
/// attention, mlp, experts, shared, router or per_layer; empty: a weight that no adapter adds to.
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

/// What an adapter adds to rows of one group of a parameter, and where its file has the factors. Slices count
/// the rows of A [rank, in] and B [rows, rank].
struct FactorPair {
  std::string module;
  Index group = 0;
  Index row = 0, rows = 0;
  Index rank = 0;
  double scale = 1;
  std::vector<HfSlice> a = {}, b = {};
};
/// Of the groups whose modules the settings name; `base` as the adapter calls it.
std::vector<FactorPair> factor_pairs(const ParameterSpec& base, const AdaptedRows& part,
                                     const AdapterSettings& settings);

/// The model's own parameters as the adapter of `config` calls them.
Specs parameters_of_adapter(ModelConfig config, ExpertRange experts);
Specs parameters_of_adapter(const ModelConfig& config);

/// Freezes all that is there and adds both factors of each module that the settings name. named: the same
/// parameters as the adapter calls them.
void add_adapter(const AdapterSettings& settings, const Specs& named, Specs& specs);

}  // namespace moeloom
