#include "moeloom/model/hf/weights_io.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/checksum.hpp"
#include "moeloom/model/hf/family.hpp"
#include "moeloom/model/hf/slice_io.hpp"

#include <sstream>

namespace moeloom {
namespace {

/// use(parameter, slice) for what this rank writes of the whole model.
template <typename Use>
void for_written_slices(const ParameterStore& store, const Mesh& mesh, const Use& use) {
  for (const Parameter& parameter : store.parameters())
    if (writes(mesh, parameter.spec.placement))
      for (const HfSlice& slice : parameter.spec.slices) use(parameter, slice);
}

TensorChecksums gather_checksums(const ParameterStore& store, const Mesh& mesh) {
  std::string mine;
  for_written_slices(store, mesh, [&](const Parameter& parameter, const HfSlice& slice) {
    mine += slice_key(slice, parameter.spec.cols) + ' ' + checksum_text(parameter, slice) + '\n';
  });
  TensorChecksums all;
  for (const std::string& text : mesh.world().all_gather_text(mine)) {
    std::istringstream lines(text);
    for (std::string name, hex; lines >> name >> hex;) all[name] = hex;
  }
  return all;
}

void add_tensor(const HfSlice& slice, Index cols, DType dtype, std::map<std::string, std::size_t>& place,
                std::vector<TensorSpec>& tensors) {
  const std::string violation = slice_violation(slice, cols);
  require(violation.empty(), violation);
  const auto [found, is_new] = place.try_emplace(slice.name, tensors.size());
  if (is_new) return tensors.push_back({slice.name, dtype, slice.shape});
  require(tensors[found->second].shape == slice.shape,
          "slices of " + slice.name + " must agree on the tensor's shape");
}

void add_specs(const CarriedTensors& carried, std::vector<TensorSpec>& specs) {
  for (const std::string& name : carried.names) {
    const TensorInfo& info = carried.source->info(name);
    specs.push_back({name, info.dtype, info.shape});
  }
}

/// By one rank: it is also the one that removes old checkpoints, and a network file system keeps a removed
/// file readable on the machine that removed it.
void write_carried(const CarriedTensors& carried, ShardWriter& writer) {
  for (const std::string& name : carried.names)
    writer.write_bytes(name, 0, carried.source->file_of(name).raw(name));
}

}  // namespace

bool writes(const Mesh& mesh, Placement placement) {
  const int rank = mesh.world().rank();
  return placement == Placement::kWorld ? rank == 0 : mesh.shape().dp_rank(rank) == 0;
}

std::string checksum_text(const Parameter& parameter, const HfSlice& slice) {
  const auto rows = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
  return hex_text(checksum(std::as_bytes(rows)));
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config, DType dtype) {
  std::vector<TensorSpec> tensors;
  std::map<std::string, std::size_t> place;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    for (const HfSlice& slice : spec.slices)
      add_tensor(slice, spec.cols, stays_fp32(slice.name) ? DType::kF32 : dtype, place, tensors);
  return tensors;
}

void write_together(const Communicator& world, const std::filesystem::path& folder, const ShardPlan& plan,
                    const std::function<void(ShardWriter&)>& write_mine) {
  agree(world, [&] {
    if (world.rank() == 0) create_shards(folder, plan);
  });
  agree(world, [&] {
    ShardWriter writer(folder, plan);
    write_mine(writer);
    writer.close();
  });
}

TensorChecksums save_weights(const ParameterStore& store, const ModelConfig& config, const Mesh& mesh,
                             const std::filesystem::path& folder, const WeightFormat& format) {
  std::vector<TensorSpec> specs = tensor_specs(config, format.dtype);
  add_specs(config.names.carried, specs);
  const ShardPlan plan = plan_shards(specs, format.shard_bytes);
  write_together(mesh.world(), folder, plan, [&](ShardWriter& writer) {
    if (mesh.world().rank() == 0) write_carried(config.names.carried, writer);
    for_written_slices(store, mesh, [&](const Parameter& parameter, const HfSlice& slice) {
      write_slice(writer, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
    });
  });
  return gather_checksums(store, mesh);
}

}  // namespace moeloom
