// The factors of adapters: their tensors in a folder, and their places in a model.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>

#include "hf/parameters/adapter_specs.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListed = 20;

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

/// Training goes on with one product for all experts of a layer, which wants factors of each, all of one rank
/// and scale.
void require_whole_parts(const ModelConfig& config) {
  const AdapterSettings& settings = *config.adapter;
  for (const ParameterSpec& spec : parameters_of_adapter(config)) {
    if (adapted_kind(spec).empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      const std::vector<FactorPair> pairs = factor_pairs(spec, part, settings);
      const bool alike = std::ranges::all_of(pairs, [&](const FactorPair& pair) {
        return pair.rank == pairs.front().rank && pair.scale == pairs.front().scale;
      });
      if (!pairs.empty() && (!alike || std::ssize(pairs) != spec.groups))
        throw ConfigError({"the adapter has factors of " + std::to_string(pairs.size()) + " of the " +
                           std::to_string(spec.groups) + " experts beside " + pairs.front().module +
                           ", or of other ranks: it can be asked and merged into its base, but training "
                           "goes on with factors of all, of one rank and scale"},
                          Cause::kData);
    }
  }
}

void read_factor(const SafetensorsFile& file, const AdapterSettings& settings,
                 const std::vector<HfSlice>& slices, MatrixView factor) {
  for (HfSlice slice : slices) {
    slice.name = settings.in_file(slice.name);
    read_slice(file, slice, factor.rows_from(slice.row_begin, slice.rows));
  }
}

/// weight [rows, in] += s B A of the rows of a pair from `first` on.
void add_product(const SafetensorsFile& file, const AdapterSettings& settings, const FactorPair& pair,
                 Index first, MatrixView weight) {
  Matrix a = Matrix::uninitialised(pair.rank, weight.cols);
  Matrix b = Matrix::uninitialised(pair.rows, pair.rank);
  read_factor(file, settings, pair.a, a);
  read_factor(file, settings, pair.b, b);
  const auto scale = static_cast<float>(pair.scale);
  for (float& number : b.view().flat()) number *= scale;
  matmul_input_grad(b.view().rows_from(first, weight.rows), a, weight, Write::kAdd);
}

}  // namespace

std::vector<TensorSpec> adapter_tensor_specs(const ModelConfig& config, DType dtype) {
  const AdapterSettings& settings = *config.adapter;
  std::vector<TensorSpec> tensors;
  std::set<std::string> placed, listed;
  for (const ParameterSpec& spec : parameters_of_adapter(config)) {
    if (adapted_kind(spec).empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      const std::vector<FactorPair> pairs = factor_pairs(spec, part, settings);
      for (const auto factor : {&FactorPair::a, &FactorPair::b})
        for (const FactorPair& pair : pairs) {
          placed.insert(pair.module);
          for (const HfSlice& slice : pair.*factor)
            if (listed.insert(slice.name).second)  // of a stack all experts' are one tensor
              tensors.push_back({slice.name, dtype, slice.shape});
        }
    }
  }
  // A module of the settings that is none of the model's has no parameter, and would be lost without a word.
  std::vector<std::string> lost;
  for (const std::string& module : settings.modules)
    if (!placed.contains(module)) lost.push_back("module " + module + ": the model has no such weight");
  if (!lost.empty()) refuse(settings.base, std::move(lost));
  return tensors;
}

Index modules_left_out(const ModelConfig& config) {
  Index left_out = 0;
  for (const ParameterSpec& spec : parameters_of_adapter(config)) {
    if (adapted_kind(spec).empty()) continue;
    for (const AdaptedRows& part : adapted_rows(spec)) {
      const Index named = std::ranges::count_if(
          part.modules, [&](const std::string& module) { return config.adapter->modules.contains(module); });
      if (named > 0) left_out += spec.groups - named;
    }
  }
  return left_out;
}

SafetensorsFile checked_adapter(const fs::path& folder, const ModelConfig& config) {
  SafetensorsFile file(folder / kAdapterFile);
  std::vector<std::string> complaints;
  std::set<std::string> known;
  for (const TensorSpec& wanted : adapter_tensor_specs(config)) {
    const std::string& name = config.adapter->in_file(wanted.name);
    known.insert(name);
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end())
      complaints.push_back("tensor " + name + ": missing, expected " + shape_text(wanted.shape));
    else if (found->second.shape != wanted.shape)
      complaints.push_back("tensor " + name + ": expected " + shape_text(wanted.shape) + ", found " +
                           shape_text(found->second.shape));
  }
  for (const auto& [name, info] : file.tensors())
    if (!known.contains(name))
      complaints.push_back("tensor " + name + ": no module of the model has this name");
  if (!complaints.empty()) refuse(file.path(), std::move(complaints));
  return file;
}

void load_adapter(ParameterStore& store, const fs::path& folder, const ModelConfig& config,
                  PositionBoard* board) {
  const SafetensorsFile file = checked_adapter(folder, config);
  require_whole_parts(config);
  for (const Parameter& parameter : store.parameters())
    if (parameter.spec.adapter && parameter.is_filled_here)
      for (const HfSlice& slice : parameter.spec.slices) {
        read_factor(file, *config.adapter, {slice}, parameter.value);
        go_on(board);
      }
  store.mark_changed();
}

void merge_adapter(ParameterStore& store, const fs::path& folder, const ModelConfig& config,
                   PositionBoard* board) {
  const SafetensorsFile file = checked_adapter(folder, config);
  const AdapterSettings& settings = *config.adapter;
  for (const ParameterSpec& spec : parameters_of_adapter(config)) {
    if (adapted_kind(spec).empty()) continue;
    const Parameter& parameter = store.find(spec.name);
    const std::vector<Index>& here = parameter.spec.group_ids;
    const Index each = spec.rows / spec.groups;
    for (const AdaptedRows& part : adapted_rows(spec))
      for (const FactorPair& pair : factor_pairs(spec, part, settings)) {
        const auto held = std::ranges::find(here, spec.group_ids[at(pair.group)]);
        if (held == here.end()) continue;
        add_product(file, settings, pair, 0,
                    parameter.value.rows_from((held - here.begin()) * each + pair.row, pair.rows));
        go_on(board);
      }
  }
  store.mark_changed();
}

/// A slice of a tensor of the model's folder, and a pair whose first row is row `begin` of its parameter.
struct AdapterMerge::Addition {
  FactorPair pair;
  HfSlice slice;
  Index begin, cols;
};

AdapterMerge::AdapterMerge(const fs::path& adapter, const ModelConfig& config)
    : settings_(*config.adapter), file_(checked_adapter(adapter, config)) {
  const Specs in_folder = own_parameters(config), named = parameters_of_adapter(config);
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (adapted_kind(named[i]).empty()) continue;
    ParameterSpec weight = in_folder[i];
    std::ranges::stable_sort(weight.slices, {}, &HfSlice::row_begin);
    for (const AdaptedRows& part : adapted_rows(named[i]))
      for (const FactorPair& pair : factor_pairs(named[i], part, settings_)) add(pair, weight);
  }
}

AdapterMerge::~AdapterMerge() = default;
AdapterMerge::AdapterMerge(AdapterMerge&&) noexcept = default;

void AdapterMerge::add(const FactorPair& pair, const ParameterSpec& weight) {
  const Index begin = pair.group * (weight.rows / weight.groups) + pair.row;
  const auto ends_before = [&](const HfSlice& slice) { return slice.row_begin + slice.rows <= begin; };
  for (auto slice = std::ranges::partition_point(weight.slices, ends_before);
       slice != weight.slices.end() && slice->row_begin < begin + pair.rows; ++slice)
    additions_[slice->name].push_back({pair, *slice, begin, weight.cols});
}

std::set<std::string> AdapterMerge::tensors() const {
  std::set<std::string> names;
  for (const auto& [name, additions] : additions_) names.insert(name);
  return names;
}

void AdapterMerge::add_to(const std::string& tensor, std::span<float> values) const {
  for (const auto& [pair, slice, begin, cols] : additions_.at(tensor)) {
    const Index from = std::max(begin, slice.row_begin);
    const Index rows = std::min(begin + pair.rows, slice.row_begin + slice.rows) - from;
    const Index first = (from - slice.row_begin) * cols;
    if (slice.layout == SliceLayout::kRows) {
      add_product(file_, settings_, pair, from - begin,
                  {values.data() + place_in_file(slice, cols, first), rows, cols});
      continue;
    }
    Matrix sum(rows, cols);
    add_product(file_, settings_, pair, from - begin, sum);
    for (Index i = 0; i < rows * cols; ++i)
      values[at(place_in_file(slice, cols, first + i))] += sum.view().data[i];
  }
}

}  // namespace moeloom
