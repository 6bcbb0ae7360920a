// The factors of adapters: their tensors in a folder, and their places in a model.
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/adapter.hpp"
#include "moeloom/model/hf/slice_io.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <array>
#include <sstream>

#include "hf/adapter_specs.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListed = 20;

/// "0.19.1" and later, also "1.0" and "0.20.0.dev0".
bool has_stacks_as_here(const std::string& version) {
  std::array<int, 3> parts{};
  std::istringstream text(version);
  char dot = 0;
  for (int& part : parts)
    if (!(text >> part) || !(text >> dot)) break;
  return parts >= std::array{0, 19, 1};
}

/// A stack [E, out, in] of which PEFT before 0.19.1 may have exchanged in and out, and no shape would tell;
/// empty: there is none.
std::string ambiguous_stack(const ModelConfig& config) {
  for (const ParameterSpec& spec : own_parameters(config))
    for (const AdaptedRows& part : adapted_rows(spec))
      if (part.stack == SliceLayout::kRows && part.rows == spec.cols &&
          config.adapter->modules.contains(part.modules.front()))
        return part.modules.front();
  return {};
}

[[noreturn]] void refuse(const fs::path& file, std::vector<std::string> complaints) {
  const std::size_t all = complaints.size();
  if (all > kListed) {
    complaints.resize(kListed);
    complaints.push_back("and " + std::to_string(all - kListed) + " more");
  }
  complaints.insert(complaints.begin(),
                    file.string() + " does not fit the model (" + std::to_string(all) + " tensors differ):");
  throw ConfigError(std::move(complaints), Cause::kData);
}

std::string shape_text(const std::vector<Index>& shape) {
  std::string text = "[";
  for (const Index size : shape) text += (text.size() == 1 ? "" : ",") + std::to_string(size);
  return text + "]";
}

}  // namespace

AdapterFile::AdapterFile(const fs::path& folder)
    : settings_(read_adapter_settings(folder)), file_(folder / kAdapterFile) {}

void AdapterFile::add_product(const HfSlice& a_slice, const HfSlice& b_slice, MatrixView weight) const {
  Matrix a = Matrix::uninitialised(settings_.rank, weight.cols);
  Matrix b = Matrix::uninitialised(weight.rows, settings_.rank);
  for (const auto& [slice, factor] : {std::pair(&a_slice, a.view()), std::pair(&b_slice, b.view())}) {
    require(file_.info(slice->name).shape == slice->shape,
            "tensor " + slice->name + " of " + file_.path().string() + " must be " +
                shape_text(slice->shape) + " to fit the weight, and is " +
                shape_text(file_.info(slice->name).shape));
    read_slice(file_, *slice, factor);
  }
  const auto scale = static_cast<float>(settings_.scale());
  for (float& number : b.view().flat()) number *= scale;
  matmul_input_grad(b, a, weight, Write::kAdd);
}

void AdapterFile::add_to(const std::string& module, MatrixView weight) const {
  const std::string path = path_in_adapter(module, settings_.modules);
  add_product(factor_slice(path, true, settings_.rank, weight.cols),
              factor_slice(path, false, weight.rows, settings_.rank), weight);
}

void AdapterFile::add_to_stack(const std::string& module, Index experts, SliceLayout layout,
                               MatrixView weights) const {
  const bool transposed = layout != SliceLayout::kRows;
  const Index each = weights.rows / experts;
  const Index in = transposed ? each : weights.cols, out = transposed ? weights.cols : each;
  const std::string path = path_in_adapter(module, settings_.modules);
  Matrix turned(transposed ? out : 0, in);
  for (Index expert = 0; expert < experts; ++expert) {
    const MatrixView weight = weights.rows_from(expert * each, each);
    const MatrixView sum = transposed ? turned.view() : weight;
    if (transposed) fill(sum, 0.0f);
    const InStack stack{expert, experts};  // rows of B as the file has them
    add_product(factor_slice(path, true, settings_.rank, in, stack),
                factor_slice(path, false, out, settings_.rank, stack), sum);
    if (!transposed) continue;
    for (Index i = 0; i < in; ++i)
      for (Index o = 0; o < out; ++o) weight(i, o) += sum(o, i);
  }
}

std::vector<TensorSpec> adapter_tensor_specs(const ModelConfig& config, DType dtype) {
  std::vector<TensorSpec> tensors;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    if (spec.adapter)
      for (const HfSlice& slice : spec.slices)
        if (tensors.empty() || tensors.back().name != slice.name)  // of a stack all experts' are one tensor
          tensors.push_back({slice.name, dtype, slice.shape});
  // A module of the settings that is none of the model's has no parameter, and would be lost without a word.
  std::set<std::string> placed;
  for (const AdaptableModule& module : adaptable_modules(config)) placed.insert(module.name);
  std::vector<std::string> lost;
  for (const std::string& module : config.adapter->modules)
    if (!placed.contains(module)) lost.push_back("module " + module + ": the model has no such weight");
  if (!lost.empty()) refuse(config.adapter->base, std::move(lost));
  return tensors;
}

SafetensorsFile checked_adapter(const fs::path& folder, const ModelConfig& config) {
  SafetensorsFile file(folder / kAdapterFile);
  std::vector<std::string> complaints;
  std::set<std::string> known;
  for (const TensorSpec& wanted : adapter_tensor_specs(config)) {
    known.insert(wanted.name);
    const auto found = file.tensors().find(wanted.name);
    if (found == file.tensors().end())
      complaints.push_back("tensor " + wanted.name + ": missing, expected " + shape_text(wanted.shape));
    else if (found->second.shape != wanted.shape)
      complaints.push_back("tensor " + wanted.name + ": expected " + shape_text(wanted.shape) + ", found " +
                           shape_text(found->second.shape));
  }
  for (const auto& [name, info] : file.tensors())
    if (!known.contains(name))
      complaints.push_back("tensor " + name + ": no module of the model has this name");
  if (!complaints.empty()) refuse(file.path(), std::move(complaints));
  const fs::path document = folder / kAdapterConfigFile;
  const std::string stack = ambiguous_stack(config);
  if (!stack.empty() && !has_stacks_as_here(Document::read(document).text_or("peft_version", "")))
    throw ConfigError({document.string() + ": \"peft_version\" is not 0.19.1 or later: the factors of " +
                       stack + ", which has as many rows as columns, could be either way round"},
                      Cause::kData);
  return file;
}

void load_adapter(ParameterStore& store, const fs::path& folder, const ModelConfig& config,
                  PositionBoard* board) {
  const SafetensorsFile file = checked_adapter(folder, config);
  for (const Parameter& parameter : store.parameters())
    if (parameter.spec.adapter && parameter.is_filled_here)
      for (const HfSlice& slice : parameter.spec.slices) {
        read_slice(file, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
        go_on(board);
      }
  store.mark_changed();
}

void merge_adapter(ParameterStore& store, const fs::path& folder, const ModelConfig& config,
                   PositionBoard* board) {
  checked_adapter(folder, config);
  const AdapterFile file(folder);
  const AdapterSettings& settings = file.settings();
  for (const Parameter& parameter : store.parameters()) {
    if (adapted_kind(parameter.spec).empty()) continue;
    const Index each = parameter.spec.rows / parameter.spec.groups;
    for (const AdaptedRows& part : adapted_rows(parameter.spec)) {
      const Specs factors = factors_of(parameter.spec, part, 0, settings);
      for (Index group = 0; group < parameter.spec.groups; ++group) {
        if (!settings.modules.contains(part.modules[at(group)])) continue;
        file.add_product(factors[0].slices[at(group)], factors[1].slices[at(group)],
                         parameter.value.rows_from(group * each + part.row, part.rows));
        go_on(board);
      }
    }
  }
  store.mark_changed();
}

}  // namespace moeloom
