#include "hf/parameters/adapter_specs.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

const std::string kWeight = ".weight";
const std::string kBlock = ".experts";
const std::string kInnerStack = ".gate_up_proj", kOuterStack = ".down_proj";
const std::string kInner = ".base_layer";

bool is_stack(const HfSlice& slice) {
  return slice.shape.size() == 3;
}

std::string module_of(const HfSlice& slice) {
  const bool has_ending = slice.name.ends_with(kWeight);
  return has_ending ? slice.name.substr(0, slice.name.size() - kWeight.size()) : slice.name;
}

/// Rows of a matrix of its own, of several modules that the file fuses, or of an expert in a stack.
bool is_linear(const HfSlice& slice) {
  if (is_stack(slice)) return true;
  return slice.layout == SliceLayout::kRows && slice.shape.size() == 2 && slice.name.ends_with(kWeight);
}

/// The next rows of a part, which come from this tensor of its module.
void append_rows(AdaptedRows& part, const HfSlice& slice, Index cols) {
  const Index from = slice.source_begin / cols;
  if (!part.order.empty())
    if (MovedRows& last = part.order.back(); last.from + last.rows == from) {
      last.rows += slice.rows;
      part.rows += slice.rows;
      return;
    }
  part.order.push_back({part.rows, slice.rows, from});
  part.rows += slice.rows;
}

/// Where each group's rows come from; a parameter of many experts is looked through once.
std::vector<std::vector<const HfSlice*>> slices_by_group(const ParameterSpec& spec) {
  const Index each = spec.rows / spec.groups;
  std::vector<std::vector<const HfSlice*>> groups(at(spec.groups));
  for (const HfSlice& slice : spec.slices) groups.at(at(slice.row_begin / each)).push_back(&slice);
  return groups;
}

/// The stretches of a group's rows that come from one tensor each.
std::vector<AdaptedRows> rows_of_group(const ParameterSpec& spec, Index group,
                                       const std::vector<const HfSlice*>& slices) {
  const Index each = spec.rows / spec.groups;
  std::vector<AdaptedRows> found;
  for (const HfSlice* const from : slices) {
    const HfSlice& slice = *from;
    if (!is_linear(slice)) return {};
    const std::string module = module_of(slice);
    if (found.empty() || found.back().modules.front() != module)
      found.push_back({.row = slice.row_begin - group * each,
                       .modules = {module},
                       .stack = is_stack(slice) ? std::optional(slice.layout) : std::nullopt});
    append_rows(found.back(), slice, spec.cols);
  }
  std::set<std::string> seen;
  for (const AdaptedRows& part : found)
    if (!seen.insert(part.modules.front()).second) return {};  // rows of another module lie between its own
  return found;
}

/// Which expert of a stack a pair of factors belongs to.
struct InStack {
  Index expert, experts;
  SliceLayout layout;
  bool is_turned;
};

/// A stack's factors of one expert: of A, which is [E r, in] in the file, some rows; of B, which is
/// [out, r E], some columns. Exchanged, A is what the file calls B, and the other way round.
void place_in_stack(const InStack& stack, const std::string& name, Index in, FactorPair& pair) {
  const bool alternates = stack.layout == SliceLayout::kInterleaved;
  const Index rank = pair.rank, all = rank * stack.experts;
  const auto rows_of = [&](const char* factor, Index cols) {
    return HfSlice{.name = name + factor,
                   .rows = rank,
                   .shape = {all, cols},
                   .source_begin = stack.expert * rank * cols};
  };
  const auto columns_of = [&](const char* factor, Index rows, SliceLayout layout) {
    return HfSlice{.name = name + factor,
                   .rows = rows,
                   .shape = {rows, all},
                   .source_begin = stack.expert,
                   .layout = layout,
                   .column_step = stack.experts};
  };
  if (!stack.is_turned) {
    pair.a = {rows_of(kFactorA.c_str(), in)};
    pair.b = {columns_of(kFactorB.c_str(), pair.rows,
                         alternates ? SliceLayout::kInterleavedSteps : SliceLayout::kSteps)};
    return;
  }
  pair.a = {columns_of(kFactorB.c_str(), in, SliceLayout::kTurnedSteps)};
  pair.a.front().rows = rank;
  pair.b = {rows_of(kFactorA.c_str(), pair.rows)};
  pair.b.front().rows = pair.rows;
  pair.b.front().layout = alternates ? SliceLayout::kInterleaved : SliceLayout::kTransposed;
}

FactorPair pair_of(const ParameterSpec& base, const AdaptedRows& part, Index group,
                   const AdapterSettings& settings) {
  FactorPair pair{.module = part.modules[at(group)], .group = group, .row = part.row, .rows = part.rows};
  const OwnRank own = settings.of(pair.module);
  pair.rank = own.rank;
  pair.scale = settings.scale_of(own);
  const std::string name = kPeftPrefix + path_in_adapter(pair.module, settings.modules);
  if (part.stack) {
    place_in_stack({base.group_ids[at(group)], base.total_groups, *part.stack, settings.turned_stacks}, name,
                   base.cols, pair);
    return pair;
  }
  pair.a = {{.name = name + kFactorA, .rows = pair.rank, .shape = {pair.rank, base.cols}}};
  for (const MovedRows& moved : part.order)
    pair.b.push_back({.name = name + kFactorB,
                      .row_begin = moved.row,
                      .rows = moved.rows,
                      .shape = {pair.rows, pair.rank},
                      .source_begin = moved.from * pair.rank});
  return pair;
}

/// One factor of all groups, of which each has its module.
ParameterSpec factor_of(const ParameterSpec& base, const AdaptedRows& part, Index number, bool is_a,
                        const AdapterSettings& settings) {
  const FactorPair first = pair_of(base, part, 0, settings);
  ParameterSpec factor;
  factor.name = base.name + (is_a ? ".lora_A." : ".lora_B.") + std::to_string(number);
  const Index rows = is_a ? first.rank : first.rows;
  factor.rows = base.groups * rows;
  factor.cols = is_a ? base.cols : first.rank;
  factor.placement = base.placement;
  factor.groups = base.groups;
  factor.group_ids = base.group_ids;
  factor.total_groups = base.total_groups;
  factor.layer = base.layer;
  factor.init = !is_a ? Init::kZeros : settings.init == AdapterInit::kGaussian ? Init::kByRank : Init::kFanIn;
  factor.adapter = AdapterRole{base.name, part.row, static_cast<float>(first.scale), is_a, settings.dropout};
  for (Index group = 0; group < base.groups; ++group) {
    FactorPair pair = pair_of(base, part, group, settings);
    for (HfSlice& slice : is_a ? pair.a : pair.b) {
      slice.row_begin += group * rows;
      factor.slices.push_back(std::move(slice));
    }
  }
  return factor;
}

/// Whether a module is a stack of a block of experts.
bool is_in_block(const std::string& module) {
  return module.ends_with(kBlock + kInnerStack) || module.ends_with(kBlock + kOuterStack);
}

}  // namespace

double AdapterSettings::scale_of(const OwnRank& of_module) const {
  const auto r = static_cast<double>(of_module.rank);
  return of_module.alpha / (rank_stabilised ? std::sqrt(r) : r);
}

OwnRank AdapterSettings::of(const std::string& module) const {
  const auto found = own.find(module);
  return found == own.end() ? OwnRank{rank, alpha} : found->second;
}

const std::string& AdapterSettings::in_file(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  return found == tensors.end() ? tensor : found->second;
}

std::vector<AdaptedRows> adapted_rows(const ParameterSpec& spec) {
  if (spec.groups == 0) return {};
  const std::vector<std::vector<const HfSlice*>> slices = slices_by_group(spec);
  std::vector<AdaptedRows> parts = rows_of_group(spec, 0, slices.front());
  for (Index group = 1; group < spec.groups; ++group) {
    const std::vector<AdaptedRows> more = rows_of_group(spec, group, slices[at(group)]);
    require(more.size() == parts.size(), "experts of " + spec.name + " are made of the same modules");
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].modules.push_back(more[i].modules.front());
  }
  return parts;
}

std::string adapted_kind(const ParameterSpec& spec) {
  if (!spec.is_matrix || spec.adapter) return {};
  const auto has = [&](const char* text) { return spec.name.find(text) != std::string::npos; };
  if (has(".per_layer_")) return "per_layer";
  if (spec.layer < 0) return {};
  if (has(".experts.")) return "experts";
  if (has(".shared_expert.")) return "shared";
  if (has(".mlp.gate.weight")) return "router";
  if (has("_proj.weight") || has("_with_mqa.weight")) return has(".mlp.") ? "mlp" : "attention";
  return {};
}

std::string path_in_adapter(const std::string& module, const std::set<std::string>& adapted) {
  if (!is_in_block(module)) return module;
  const std::size_t dot = module.rfind('.');
  const std::string block = module.substr(0, dot);
  const bool is_inner = module.ends_with(kInnerStack) && adapted.contains(block + kOuterStack);
  return is_inner ? block + kInner : block;
}

std::vector<FactorPair> factor_pairs(const ParameterSpec& base, const AdaptedRows& part,
                                     const AdapterSettings& settings) {
  std::vector<FactorPair> pairs;
  for (Index group = 0; group < base.groups; ++group)
    if (settings.modules.contains(part.modules[at(group)]))
      pairs.push_back(pair_of(base, part, group, settings));
  return pairs;
}

Specs parameters_of_adapter(ModelConfig config, ExpertRange experts) {
  if (config.adapter && config.adapter->names) config.names = *config.adapter->names;
  config.adapter.reset();
  return parameter_specs(config, experts);
}

Specs parameters_of_adapter(const ModelConfig& config) {
  return parameters_of_adapter(config, {0, config.num_experts});
}

void add_adapter(const AdapterSettings& settings, const Specs& named, Specs& specs) {
  for (ParameterSpec& spec : specs) {
    spec.frozen = true;
    if (may_be_half(spec)) spec.stored = settings.base_stored;
  }
  for (const ParameterSpec& spec : named) {
    if (adapted_kind(spec).empty()) continue;
    Index number = 0;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      const bool is_adapted = std::ranges::any_of(
          part.modules, [&](const std::string& module) { return settings.modules.contains(module); });
      // Of a list of experts all have one or none: they are one product.
      for (const bool is_a : {true, false})
        if (is_adapted) specs.push_back(factor_of(spec, part, number, is_a, settings));
      ++number;
    }
  }
}

}  // namespace moeloom
