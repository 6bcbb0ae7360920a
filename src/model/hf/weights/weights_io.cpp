#include "model/hf/weights/weights_io.hpp"

#include "base/checksum.hpp"
#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

void add_tensor(const HfSlice& slice, Index cols, DType dtype, std::map<std::string, std::size_t>& place,
                std::vector<TensorSpec>& tensors) {
  const std::string violation = slice_violation(slice, cols);
  require(violation.empty(), violation);
  const auto [found, is_new] = place.try_emplace(slice.name, tensors.size());
  if (is_new) return tensors.push_back({slice.name, dtype, slice.shape});
  require(tensors[found->second].shape == slice.shape,
          "slices of " + slice.name + " must agree on the tensor's shape");
}

void add_carried(const ModelConfig& config, std::vector<TensorSpec>& specs) {
  const CarriedTensors& carried = config.names.carried;
  for (const std::string& name : carried.names) {
    const TensorInfo& info = carried.source->info(name);
    const bool scaled = has_scales(*carried.source, config.stored, name);
    specs.push_back({name, scaled ? DType::kBF16 : info.dtype, info.shape});
  }
}

/// Parts of a model named as `from` says, named as `to` does: both have the same slices in the same order.
void rename_parts(const ModelConfig& from, const ModelConfig& to, std::vector<WeightPart>& parts) {
  const std::vector<ParameterSpec> before = own_parameters(from), after = own_parameters(to);
  std::map<std::pair<std::string, Index>, const HfSlice*> renamed;
  const auto place_of = [](const HfSlice& slice) { return std::pair(slice.name, slice.source_begin); };
  for (std::size_t i = 0; i < before.size(); ++i)
    for (std::size_t j = 0; j < before[i].slices.size(); ++j)
      renamed[place_of(before[i].slices[j])] = &after[i].slices.at(j);
  for (WeightPart& part : parts) {
    const Index row = part.slice.row_begin;
    part.slice = *renamed.at(place_of(part.slice));
    part.slice.row_begin = row;
  }
}

/// By one rank: it is also the one that removes old checkpoints, and a network file system keeps a removed
/// file readable on the machine that removed it.
void write_carried(const ModelConfig& config, ShardWriter& writer) {
  const CarriedTensors& carried = config.names.carried;
  for (const std::string& name : carried.names) {
    if (!has_scales(*carried.source, config.stored, name)) {
      writer.write_bytes(name, 0, carried.source->file_of(name).raw(name));
      continue;
    }
    StoredTensor(*carried.source, config.stored, name)
        .for_stretches(
            0, carried.source->info(name).elements(),
            [&](Index begin, std::span<const float> numbers) { writer.write(name, begin, numbers); });
  }
}

}  // namespace

bool writes(const Mesh& mesh, Placement placement) {
  const int rank = mesh.world().rank();
  return placement == Placement::kWorld ? rank == 0 : mesh.shape().dp_rank(rank) == 0;
}

std::string checksum_text(ConstMatrixView rows) {
  return hex_text(checksum(std::as_bytes(rows.flat())));
}

StoredRows rows_of(const Parameter& parameter, const HfSlice& slice) {
  return parameter.stored().rows_from(slice.row_begin, slice.rows);
}

std::vector<WeightPart> written_parts(const ParameterStore& store, const Mesh& mesh) {
  std::vector<WeightPart> parts;
  const bool has_adapter = std::ranges::any_of(
      store.parameters(), [](const Parameter& parameter) { return parameter.spec.adapter.has_value(); });
  for (const Parameter& parameter : store.parameters())
    if (parameter.spec.adapter.has_value() == has_adapter && writes(mesh, parameter.spec.placement))
      for (const HfSlice& slice : parameter.spec.slices) parts.push_back({slice, rows_of(parameter, slice)});
  return parts;
}

std::optional<ExpertLayout> released_experts(const ModelConfig& config) {
  const std::optional<MoeRule>& rule = config.family().moe;
  const bool is_other = rule && !config.adapter && rule->layout == ExpertLayout::kStacked &&
                        config.names.experts == ExpertLayout::kList;
  return is_other ? std::optional(rule->layout) : std::nullopt;
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config, DType dtype) {
  std::vector<TensorSpec> tensors;
  std::map<std::string, std::size_t> place;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    for (const HfSlice& slice : spec.slices)
      if (!spec.adapter)
        add_tensor(slice, spec.cols, stays_fp32(config.family(), slice.name) ? DType::kF32 : dtype, place,
                   tensors);
  return tensors;
}

ShardPlan plan_weights(const ModelConfig& config, const WeightFormat& format) {
  if (config.adapter) return plan_single_file(kAdapterFile, adapter_tensor_specs(config, format.dtype));
  std::vector<TensorSpec> specs = tensor_specs(config, format.dtype);
  add_carried(config, specs);
  return plan_shards(specs, format.shard_bytes);
}

void write_weights(ShardWriter& writer, const std::vector<WeightPart>& parts, const ModelConfig& config,
                   const Mesh& mesh, PositionBoard* board) {
  if (mesh.world().rank() == 0 && !config.adapter) write_carried(config, writer);
  std::vector<const HfSlice*> together;
  std::vector<ConstMatrixView> rows;
  Matrix memory;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    together.push_back(&parts[i].slice);
    rows.push_back(parts[i].rows.read(memory));  // those that alternate are factors, which are floats
    if (i + 1 < parts.size() && alternates_with(parts[i + 1].slice, parts[i].slice)) continue;
    if (together.size() > 1)
      write_slices(writer, together, rows);
    else
      write_slice(writer, parts[i].slice, rows.front());
    together.clear();
    rows.clear();
    go_on(board);
  }
}

std::vector<FilePiece> save_weights(const ParameterStore& store, const ModelConfig& config, const Mesh& mesh,
                                    const std::filesystem::path& folder, const WeightFormat& format) {
  store.require_whole();
  const Communicator& world = mesh.world();
  ModelConfig written = config;
  if (format.experts) written.names.experts = *format.experts;
  const ShardPlan plan = plan_weights(written, format);
  std::vector<FilePiece> pieces;
  agree(world, [&] {
    if (world.rank() == 0) pieces = create_shards(folder, plan);
  });
  agree(world, [&] {
    ShardWriter writer(folder, plan);
    std::vector<WeightPart> parts = written_parts(store, mesh);
    if (format.experts) rename_parts(config, written, parts);
    write_weights(writer, parts, written, mesh, world.board());
    writer.close();
    for (FilePiece& piece : writer.begun_pieces()) pieces.push_back(std::move(piece));
  });
  return pieces;
}

}  // namespace moeloom
