// Weights from and to safetensors under Hugging Face's names; each rank touches only what it holds.
//
// Files are written by all ranks at once: they plan the same layout, world rank 0 makes the files at their
// full size, and each writes its byte ranges. Experts go by their global id, so a file does not know the mesh
// it came from.
#pragma once

#include "io/safetensors_shards.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/glob.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/hf/config.hpp"

#include <map>
#include <optional>

namespace moeloom {

/// How a folder of tensors covers a model.
struct WeightCoverage {
  Index expected = 0;                // tensors of the whole model
  Index found = 0;                   // of those
  std::vector<std::string> missing;  // allowed to be: they keep the values they have
  std::vector<std::string> unused;   // accepted but not read: allowed, or the stored copy of a tied head
  Index carried = 0;                 // beside the model: not read either, and written back
  Index scales = 0;                  // of tensors in FP8, which are read with them
  Index of_activations = 0;          // scales of what products take in where weights are FP8: passed over
};

/// Names, shapes and number formats of the whole model, whatever this rank holds. Throws ConfigError that
/// lists every tensor that is missing, unexpected, of another shape or of a format other than F32, BF16, F16
/// and, with its scales, FP8 (stored_tensor.hpp), and every pattern of `allowed` that excuses none of those
/// that are missing or unexpected.
WeightCoverage check_weights(const SafetensorsFolder& folder, const ModelConfig& config,
                             const NamePatterns& allowed = {});

/// check_weights, then the values of this rank's slices, but for those that another rank of the node fills.
/// Not collective; one rank may fail to read alone.
/// board: sees each slice.
WeightCoverage load_weights(ParameterStore& store, const SafetensorsFolder& folder, const ModelConfig& config,
                            const NamePatterns& allowed = {}, PositionBoard* board = nullptr);

/// Tensor (slice_key where it is a stack) -> checksum of its fp32 values as a rank holds them, in
/// hexadecimal.
using TensorChecksums = std::map<std::string, std::string>;

/// Of the floats of a slice: rows [slice.rows, cols].
std::string checksum_text(ConstMatrixView rows);
/// The slice's rows of its parameter.
StoredRows rows_of(const Parameter& parameter, const HfSlice& slice);

struct WeightFormat {
  Index shard_bytes = kShardBytes;
  DType dtype = DType::kF32;                 // or kBF16, kF16: rounded
  std::optional<ExpertLayout> experts = {};  // none: as config.names says
};

/// Experts as the released folders of the family have them, where a list is not what every version of
/// transformers reads (Qwen3.5); none: as config.names says. Not of an adapter.
std::optional<ExpertLayout> released_experts(const ModelConfig& config);

/// A slice that this rank writes, and where its values are.
struct WeightPart {
  HfSlice slice;  // as the store had it: experts may change ranks before it is written
  StoredRows rows;
};
/// Of the whole model, or of its adapter alone where it has one: dense weights come from world rank 0,
/// experts from the ranks of dp_rank 0.
std::vector<WeightPart> written_parts(const ParameterStore& store, const Mesh& mesh);

/// The model's files with what config.names carries beside it, in its own format, or in bf16 what that was in
/// FP8: the config that is written says nothing of scales. With config.adapter the
/// adapter's file (adapter.hpp).
ShardPlan plan_weights(const ModelConfig& config, const WeightFormat& format);
/// This rank's parts, and what is carried if it is the one that writes that. board: sees each part.
void write_weights(ShardWriter& writer, const std::vector<WeightPart>& parts, const ModelConfig& config,
                   const Mesh& mesh, PositionBoard* board = nullptr);

/// Writes the whole model into `folder`, which exists and has no weights -> the pieces that this rank is to
/// sum. Collective over the world; throws AgreedError on every rank if one could not write, and leaves what
/// there is of the files.
std::vector<FilePiece> save_weights(const ParameterStore& store, const ModelConfig& config, const Mesh& mesh,
                                    const std::filesystem::path& folder, const WeightFormat& format = {});

/// Whether this rank is the one that writes the parameters of a placement.
bool writes(const Mesh& mesh, Placement placement);

/// Every tensor of the model as the file has it, once, in the order of the parameters; of `dtype` but for
/// those that stay fp32.
std::vector<TensorSpec> tensor_specs(const ModelConfig& config, DType dtype = DType::kF32);

}  // namespace moeloom
