// The parameters of a block of experts, in each of the ways in which files keep them.
#include <numeric>
#include <utility>

#include "hf/parameters/parameter_parts.hpp"

namespace moeloom {
namespace {

/// The four parameters of a block's experts.
struct ExpertSpecs {
  ParameterSpec gate_up, down, gate_up_bias, down_bias;
};

ParameterSpec of_experts(const MoeSpec& spec, ExpertRange experts, const std::string& name, Index cols) {
  ParameterSpec parameter;
  parameter.name = spec.prefix + name;
  parameter.cols = cols;
  parameter.placement = Placement::kExperts;
  parameter.groups = experts.count;
  parameter.group_ids.resize(at(experts.count));
  std::iota(parameter.group_ids.begin(), parameter.group_ids.end(), experts.begin);
  parameter.total_groups = spec.router.num_experts;
  return parameter;
}

ParameterSpec bias_of_experts(const MoeSpec& spec, ExpertRange experts, const std::string& name) {
  ParameterSpec parameter = of_experts(spec, experts, name, 1);
  parameter.is_matrix = false;
  parameter.init = Init::kZeros;
  return parameter;
}

/// [rows, cols] of a weight, [rows] of a bias; `outer`: what goes before.
std::vector<Index> shape_of(const ParameterSpec& parameter, std::vector<Index> outer, Index rows) {
  outer.push_back(rows);
  if (parameter.is_matrix) outer.push_back(parameter.cols);
  return outer;
}

/// Rows of one expert in a tensor of its own.
void add_rows(ParameterSpec& parameter, const std::string& name, Index rows) {
  parameter.slices.push_back(
      {.name = name, .row_begin = parameter.rows, .rows = rows, .shape = shape_of(parameter, {}, rows)});
  parameter.rows += rows;
}

/// Rows of one expert, from `first` on, of the `stride` that each has in a tensor that all share.
struct StackedRows {
  Index rows, expert, first, stride;
  SliceLayout layout;
};

void add_stacked_rows(ParameterSpec& parameter, const std::string& name, const StackedRows& stacked) {
  const auto& [rows, expert, first, stride, layout] = stacked;
  const Index cols = parameter.cols, all = parameter.total_groups;
  const bool by_columns = layout != SliceLayout::kRows;
  parameter.slices.push_back({.name = name,
                              .row_begin = parameter.rows,
                              .rows = rows,
                              .shape = by_columns && parameter.is_matrix
                                           ? std::vector<Index>{all, cols, stride}
                                           : shape_of(parameter, {all}, stride),
                              .source_begin = expert * stride * cols + (by_columns ? first : first * cols),
                              .layout = layout});
  parameter.rows += rows;
}

void list_experts(ExpertSpecs& specs, const Naming& naming, const MoeSpec& spec, ExpertRange experts) {
  const ExpertNames& names = naming.family.moe->experts;
  for (Index id = experts.begin; id < experts.begin + experts.count; ++id) {
    const std::string expert = naming.block(spec.prefix) + "experts." + std::to_string(id) + ".";
    add_rows(specs.gate_up, expert + names.gate + ".weight", spec.width);
    add_rows(specs.gate_up, expert + names.up + ".weight", spec.width);
    add_rows(specs.down, expert + names.down + ".weight", spec.hidden_size);
    add_rows(specs.gate_up_bias, expert + names.gate + ".bias", spec.width);
    add_rows(specs.gate_up_bias, expert + names.up + ".bias", spec.width);
    add_rows(specs.down_bias, expert + names.down + ".bias", spec.hidden_size);
  }
}

/// Gate and up are apart in slices even where they follow each other in the file, so that a pattern can name
/// a slice's role the same way in every layout; not where they alternate.
void add_stacked_halves(ParameterSpec& parameter, const std::string& name, Index f, Index id,
                        SliceLayout layout) {
  if (layout == SliceLayout::kInterleaved)
    return add_stacked_rows(parameter, name, {2 * f, id, 0, 2 * f, layout});
  add_stacked_rows(parameter, name, {f, id, 0, 2 * f, layout});
  add_stacked_rows(parameter, name, {f, id, f, 2 * f, layout});
}

/// `layout`: of gate_up_proj. A bias is a row an expert in each, but for what alternates.
void stack_experts(ExpertSpecs& specs, const Naming& naming, const MoeSpec& spec, ExpertRange experts,
                   SliceLayout layout) {
  const Index f = spec.width, d = spec.hidden_size;
  const StackNames& names = naming.family.moe->stack;
  const std::string block = naming.block(spec.prefix);
  const bool alternates = layout == SliceLayout::kInterleaved;
  for (Index id = experts.begin; id < experts.begin + experts.count; ++id) {
    add_stacked_halves(specs.gate_up, block + names.gate_up, f, id, layout);
    add_stacked_rows(specs.down, block + names.down,
                     {d, id, 0, d, alternates ? SliceLayout::kTransposed : layout});
    add_stacked_halves(specs.gate_up_bias, block + names.gate_up_bias, f, id,
                       alternates ? layout : SliceLayout::kRows);
    add_stacked_rows(specs.down_bias, block + names.down_bias, {d, id, 0, d, SliceLayout::kRows});
  }
}

void add_experts(Specs& specs, const Naming& naming, const MoeSpec& spec, ExpertRange experts) {
  ExpertSpecs parts = {of_experts(spec, experts, "experts.gate_up_proj", spec.hidden_size),
                       of_experts(spec, experts, "experts.down_proj", spec.width),
                       bias_of_experts(spec, experts, "experts.gate_up_proj_bias"),
                       bias_of_experts(spec, experts, "experts.down_proj_bias")};
  switch (naming.names.experts) {
    case ExpertLayout::kList:
      list_experts(parts, naming, spec, experts);
      break;
    case ExpertLayout::kStacked:
      stack_experts(parts, naming, spec, experts, SliceLayout::kRows);
      break;
    case ExpertLayout::kStackedTransposed:
      stack_experts(parts, naming, spec, experts, SliceLayout::kTransposed);
      break;
    case ExpertLayout::kStackedInterleaved:
      stack_experts(parts, naming, spec, experts, SliceLayout::kInterleaved);
      break;
  }
  specs.push_back(std::move(parts.gate_up));
  specs.push_back(std::move(parts.down));
  if (!spec.expert_bias) return;
  specs.push_back(std::move(parts.gate_up_bias));
  specs.push_back(std::move(parts.down_bias));
}

/// What a file has of a shared expert's gate and up, one tensor or two.
Parts gate_up_of(const SharedExpertRule& rule, const SharedExpertSpec& shared, const std::string& at,
                 const std::string& end) {
  if (!rule.fused_gate_up.empty()) return {{at + rule.fused_gate_up + end, 2 * shared.width}};
  return {{at + "gate_proj" + end, shared.width}, {at + "up_proj" + end, shared.width}};
}

void add_shared_expert(Specs& specs, const Naming& naming, const MoeSpec& spec) {
  const SharedExpertSpec& shared = *spec.shared;
  const SharedExpertRule& rule = *naming.family.moe->shared;
  const std::string at = spec.prefix + "shared_expert.";
  const std::string block = naming.block(spec.prefix);
  const std::string file = (rule.beside_block ? naming.layer(spec.prefix) : block) + rule.name + ".";
  const Index d = spec.hidden_size;
  specs.push_back(matrix(at + "gate_up_proj.weight", d, gate_up_of(rule, shared, file, ".weight")));
  specs.push_back(matrix(at + "down_proj.weight", shared.width, {{file + rule.down + ".weight", d}}));
  if (shared.bias) {
    specs.push_back(bias(at + "gate_up_proj.bias", gate_up_of(rule, shared, file, ".bias")));
    specs.push_back(bias(at + "down_proj.bias", {{file + rule.down + ".bias", d}}));
  }
  if (shared.gated)
    specs.push_back(
        matrix(spec.prefix + "shared_expert_gate.weight", d, {{block + "shared_expert_gate.weight", 1}}));
}

/// Moved by hand of whoever balances the load, never by a gradient.
ParameterSpec correction_bias(const Naming& naming, const MoeSpec& spec) {
  const RouterNames& names = naming.family.moe->router_names;
  const Index experts = spec.router.num_experts;
  ParameterSpec parameter = bias(spec.prefix + "gate.e_score_correction_bias",
                                 {{naming.block(spec.prefix) + names.correction_bias, experts}});
  if (names.correction_bias_is_row) parameter.slices.front().shape = {1, experts};
  parameter.frozen = true;
  return parameter;
}

/// A number an expert, that its weights are multiplied by.
ParameterSpec expert_scale(const MoeSpec& spec, const std::string& in_file) {
  ParameterSpec parameter = bias(spec.prefix + "gate.per_expert_scale", {{in_file, spec.router.num_experts}});
  parameter.init = Init::kOnes;
  return parameter;
}

}  // namespace

void add_moe(Specs& specs, const Naming& naming, const MoeSpec& spec, ExpertRange experts) {
  const RouterNames& names = naming.family.moe->router_names;
  const std::string block = naming.block(spec.prefix);
  const Index count = spec.router.num_experts;
  specs.push_back(matrix(spec.prefix + "gate.weight", spec.hidden_size, {{block + names.weight, count}}));
  if (spec.router_bias) specs.push_back(bias(spec.prefix + "gate.bias", {{block + names.bias, count}}));
  if (spec.correction_bias) specs.push_back(correction_bias(naming, spec));
  if (spec.router_norm) add_norm(specs, spec.router_norm->norm, block + names.input_scale);
  if (spec.expert_scale) specs.push_back(expert_scale(spec, block + names.expert_scale));
  add_experts(specs, naming, spec, experts);
  if (spec.shared) add_shared_expert(specs, naming, spec);
}

}  // namespace moeloom
