#include "hf/adapter_specs.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

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

/// The stretches of a group's rows that come from one tensor each.
std::vector<AdaptedRows> rows_of_group(const ParameterSpec& spec, Index group) {
  const Index each = spec.rows / spec.groups;
  std::vector<AdaptedRows> found;
  for (const HfSlice& slice : spec.slices) {
    if (slice.row_begin / each != group) continue;
    if (!is_linear(slice)) return {};
    const std::string module = module_of(slice);
    const Index row = slice.row_begin - group * each;
    if (!found.empty() && found.back().modules.front() == module)
      found.back().rows += slice.rows;
    else
      found.push_back(
          {row, slice.rows, {module}, is_stack(slice) ? std::optional(slice.layout) : std::nullopt});
  }
  std::set<std::string> seen;
  for (const AdaptedRows& part : found)
    if (!seen.insert(part.modules.front()).second) return {};  // rows of another module lie between its own
  return found;
}

ParameterSpec factor_of(const ParameterSpec& base, const AdaptedRows& part, Index number, bool is_a,
                        const AdapterSettings& settings) {
  const Index rows = is_a ? settings.rank : part.rows, cols = is_a ? base.cols : settings.rank;
  ParameterSpec factor;
  factor.name = base.name + (is_a ? ".lora_A." : ".lora_B.") + std::to_string(number);
  factor.rows = base.groups * rows;
  factor.cols = cols;
  factor.placement = base.placement;
  factor.groups = base.groups;
  factor.group_ids = base.group_ids;
  factor.total_groups = base.total_groups;
  factor.layer = base.layer;
  factor.init = !is_a ? Init::kZeros : settings.init == AdapterInit::kGaussian ? Init::kByRank : Init::kFanIn;
  factor.adapter =
      AdapterRole{base.name, part.row, static_cast<float>(settings.scale()), is_a, settings.dropout};
  for (Index group = 0; group < base.groups; ++group) {
    std::optional<InStack> stack;
    if (part.stack)
      stack = {factor.group_ids[at(group)], factor.total_groups, part.stack == SliceLayout::kInterleaved};
    const std::string path = path_in_adapter(part.modules[at(group)], settings.modules);
    factor.slices.push_back(factor_slice(path, is_a, rows, cols, stack));
    factor.slices.back().row_begin = group * rows;
  }
  return factor;
}

/// Whether a module is a stack of a block of experts.
bool is_in_block(const std::string& module) {
  return module.ends_with(kBlock + kInnerStack) || module.ends_with(kBlock + kOuterStack);
}

}  // namespace

double AdapterSettings::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilised ? std::sqrt(r) : r);
}

std::vector<AdaptedRows> adapted_rows(const ParameterSpec& spec) {
  if (spec.groups == 0) return {};
  std::vector<AdaptedRows> parts = rows_of_group(spec, 0);
  for (Index group = 1; group < spec.groups; ++group) {
    const std::vector<AdaptedRows> more = rows_of_group(spec, group);
    require(more.size() == parts.size(), "experts of " + spec.name + " are made of the same modules");
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].modules.push_back(more[i].modules.front());
  }
  return parts;
}

std::string adapted_kind(const ParameterSpec& spec) {
  if (spec.layer < 0 || !spec.is_matrix || spec.adapter) return {};
  const auto has = [&](const char* text) { return spec.name.find(text) != std::string::npos; };
  if (has(".experts.")) return "experts";
  if (has(".shared_expert.")) return "shared";
  if (has(".mlp.gate.weight")) return "router";
  if (has("_proj.weight") || has("_with_mqa.weight")) return has(".mlp.") ? "mlp" : "attention";
  return {};
}

bool may_be_half(const ParameterSpec& spec) {
  const std::string kind = adapted_kind(spec);
  return (!kind.empty() && kind != "router") || spec.name == "model.embed_tokens.weight" ||
         spec.name == "lm_head.weight";
}

std::string path_in_adapter(const std::string& module, const std::set<std::string>& adapted) {
  if (!is_in_block(module)) return module;
  const std::size_t dot = module.rfind('.');
  const std::string block = module.substr(0, dot);
  const bool is_inner = module.ends_with(kInnerStack) && adapted.contains(block + kOuterStack);
  return is_inner ? block + kInner : block;
}

HfSlice factor_slice(const std::string& path, bool is_a, Index rows, Index cols,
                     const std::optional<InStack>& stack) {
  HfSlice slice{
      .name = kPeftPrefix + path + (is_a ? kFactorA : kFactorB), .rows = rows, .shape = {rows, cols}};
  if (!stack) return slice;
  if (is_a) {
    slice.shape = {stack->experts * rows, cols};
    slice.source_begin = stack->expert * rows * cols;
    return slice;
  }
  slice.shape = {rows, cols * stack->experts};
  slice.source_begin = stack->expert;
  slice.column_step = stack->experts;
  slice.layout = stack->alternates ? SliceLayout::kInterleavedSteps : SliceLayout::kSteps;
  return slice;
}

Specs factors_of(const ParameterSpec& base, const AdaptedRows& part, Index number,
                 const AdapterSettings& settings) {
  Specs factors;
  for (const bool is_a : {true, false}) factors.push_back(factor_of(base, part, number, is_a, settings));
  return factors;
}

std::vector<ParameterSpec> with_storage(Specs specs, Storage masters, Storage frozen) {
  for (ParameterSpec& spec : specs) {
    if (!may_be_half(spec)) continue;
    if (!spec.frozen)
      spec.stored = masters;
    else if (frozen != Storage::kFp32)
      spec.stored = frozen;
  }
  return specs;
}

std::vector<ParameterSpec> with_gradients(Specs specs, Storage gradients) {
  for (ParameterSpec& spec : specs)
    if (spec.placement == Placement::kExperts && spec.is_matrix && !spec.frozen && !spec.adapter)
      spec.gradient = gradients;
  return specs;
}

void add_adapter(const AdapterSettings& settings, Specs& specs) {
  Specs factors;
  for (ParameterSpec& spec : specs) {
    spec.frozen = true;
    if (may_be_half(spec)) spec.stored = settings.base_stored;
    if (adapted_kind(spec).empty()) continue;
    Index number = 0;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      const bool named = std::ranges::any_of(
          part.modules, [&](const std::string& module) { return settings.modules.contains(module); });
      // Of a list of experts all have one or none: they are one product.
      if (named) std::ranges::move(factors_of(spec, part, number, settings), std::back_inserter(factors));
      ++number;
    }
  }
  for (ParameterSpec& factor : factors) specs.push_back(std::move(factor));
}

}  // namespace moeloom
