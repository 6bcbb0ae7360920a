#include "moeloom/model/weights_io.hpp"

#include "moeloom/io/checksum.hpp"

#include <sstream>

namespace moeloom {
namespace {

/// What this rank writes of the whole model.
std::vector<TensorPart> written_parts(const ParameterStore& store, const Mesh& mesh) {
  std::vector<TensorPart> parts;
  for (const Parameter& parameter : store.parameters()) {
    if (!writes(mesh, parameter.spec.placement)) continue;
    for (const HfSlice& slice : parameter.spec.slices)
      parts.push_back({slice.name, 0, parameter.value.rows_from(slice.row_begin, slice.rows).flat()});
  }
  return parts;
}

TensorChecksums gather_checksums(const Communicator& world, const std::vector<TensorPart>& parts) {
  std::string mine;
  for (const TensorPart& part : parts)
    mine += part.name + ' ' + hex_text(checksum(std::as_bytes(part.values))) + '\n';
  TensorChecksums all;
  for (const std::string& text : world.all_gather_text(mine)) {
    std::istringstream lines(text);
    for (std::string name, hex; lines >> name >> hex;) all[name] = hex;
  }
  return all;
}

}  // namespace

bool writes(const Mesh& mesh, Placement placement) {
  const int rank = mesh.world().rank();
  return placement == Placement::kWorld ? rank == 0 : mesh.shape().dp_rank(rank) == 0;
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config, const std::string& prefix) {
  std::vector<TensorSpec> tensors;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    for (const HfSlice& slice : spec.slices)
      tensors.push_back({prefix + slice.name, DType::kF32, slice.shape});
  return tensors;
}

void write_parts(const Communicator& world, const std::filesystem::path& path,
                 const std::vector<TensorSpec>& specs, const std::vector<TensorPart>& parts) {
  const SafetensorsLayout layout = plan_safetensors(specs, {{"format", "pt"}});
  agree(world, [&] {
    if (world.rank() == 0) create_safetensors(path, layout);
  });
  agree(world, [&] {
    if (parts.empty()) return;
    SafetensorsWriter writer(path, layout);
    for (const TensorPart& part : parts) writer.write(part.name, part.begin, part.values);
    writer.close();
  });
}

TensorChecksums save_weights(const ParameterStore& store, const ModelConfig& config, const Mesh& mesh,
                             const std::filesystem::path& path) {
  const std::vector<TensorPart> parts = written_parts(store, mesh);
  write_parts(mesh.world(), path, tensor_specs(config), parts);
  return gather_checksums(mesh.world(), parts);
}

}  // namespace moeloom
