// A golden model on this rank's part of a mesh, read by its own few lines so that the loader under test is
// not trusted.
#pragma once

#include "model/decoder.hpp"
#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/io/safetensors.hpp"

#include <algorithm>

namespace moeloom::testing {

/// A slice's rows [rows, cols] as the parameter has them, from a file of the checkpoint's layout.
inline std::vector<float> slice_values(const SafetensorsFile& file, const HfSlice& slice, Index cols) {
  const std::vector<float> tensor = file.floats(slice.name);
  const bool transposed = slice.layout != SliceLayout::kRows;
  const bool alternates = slice.layout == SliceLayout::kInterleaved;  // gate 0, up 0, gate 1, up 1, ...
  const Index row_step = transposed ? 1 : cols;
  const Index col_step = transposed ? slice.shape.back() : 1;
  std::vector<float> values;
  for (Index r = 0; r < slice.rows; ++r)
    for (Index c = 0; c < cols; ++c) {
      const Index row = alternates ? 2 * (r % (slice.rows / 2)) + r / (slice.rows / 2) : r;
      values.push_back(tensor.at(at(slice.source_begin + row * row_step + c * col_step)));
    }
  return values;
}

inline void read_slices(ParameterStore& store, const SafetensorsFile& file) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const std::vector<float> values = slice_values(file, slice, parameter.spec.cols);
      std::ranges::copy(values, parameter.value.rows_from(slice.row_begin, slice.rows).flat().begin());
    }
  store.mark_changed();
}

/// Of a model's folder; others are of families that are refused.
inline bool is_of_a_family_that_runs(const std::filesystem::path& folder) {
  const Family* family = find_family(Document::read(folder / "config.json").text("model_type"));
  return family != nullptr && family->refusal.empty();
}

struct GoldenModel {
  ModelConfig config;
  ParameterStore store;
  Decoder decoder;

  GoldenModel(const std::filesystem::path& folder, const Mesh& mesh, KernelTable kernels)
      : config(ModelConfig::read(folder)),
        store(parameter_specs(config, mesh.experts(std::max<Index>(config.num_experts, 1)))),
        decoder(config, store, mesh, kernels) {
    read_slices(store, SafetensorsFile(folder / "model.safetensors"));
  }
};

/// Sequences [B, S] dealt to ranks in stretches, the last ranks perhaps with none; targets are the labels
/// shifted.
inline Batch deal(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& labels,
                  const std::vector<std::int64_t>& mask, Index sequences, Index length,
                  const Communicator& world) {
  const Index each = ceil_div(sequences, world.size());
  const Index begin = std::min<Index>(sequences, each * world.rank());
  Batch batch;
  batch.sequences = std::min(each, sequences - begin);
  batch.sequence_length = length;
  for (Index s = begin; s < begin + batch.sequences; ++s)
    for (Index i = 0; i < length; ++i) {
      const auto t = static_cast<std::size_t>(s * length + i);
      batch.input_ids.push_back(static_cast<std::int32_t>(ids[t]));
      batch.targets.push_back(i + 1 < length ? static_cast<std::int32_t>(labels[t + 1]) : kIgnored);
      if (!mask.empty()) batch.is_real.push_back(static_cast<std::uint8_t>(mask[t]));
    }
  return batch;
}

/// The batch whose results are in a model's folder.
inline Batch golden_batch(const std::filesystem::path& folder, const Communicator& world) {
  const SafetensorsFile results(folder / "golden.safetensors");
  const std::vector<Index>& shape = results.info("input_ids").shape;
  return deal(
      results.integers("input_ids"), results.integers("labels"),
      results.has("attention_mask") ? results.integers("attention_mask") : std::vector<std::int64_t>{},
      shape[0], shape[1], world);
}

/// packed: grouped products read packed faces; without, masters, as most runs do.
inline KernelTable kernel_table(bool fused, bool packed = false) {
  KernelTable kernels;
  if (fused)
    kernels = {.rmsnorm = fused_rmsnorm(),
               .rope = fused_rope(),
               .swiglu = fused_swiglu(),
               .grouped_matmul = packed_grouped_matmul(),
               .dense = tiled_dense()};
  kernels.grouped_matmul.uses_packed = packed;
  return kernels;
}

/// Every (dp, ep) of `world` ranks in which each holds an expert.
inline std::vector<MeshShape> meshes_for(Index world, Index experts) {
  std::vector<MeshShape> shapes;
  for (Index ep = 1; ep <= world; ++ep) {
    if (world % ep != 0 || experts < ep) continue;
    MeshShape shape;
    shape.dp = world / ep;
    shape.ep = ep;
    shapes.push_back(shape);
  }
  return shapes;
}

/// Whether kernels are fused, of the tables to try on one of these shapes: both on the last, which has the
/// smallest parts of experts; fused ones on others, which differ from it in the exchange.
inline std::vector<bool> fused_on(const MeshShape& shape, const std::vector<MeshShape>& shapes) {
  if (shape.ep == shapes.back().ep) return {false, true};
  return {true};
}

}  // namespace moeloom::testing
