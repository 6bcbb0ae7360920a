// Weights from and to safetensors under Hugging Face's names; each rank touches only what it holds.
//
// A file is written by all ranks at once: they plan the same layout, world rank 0 makes the file at its full
// size, and each writes its byte ranges. Experts go by their global id, so a file does not know the mesh it
// came from.
#pragma once

#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/parameters.hpp"

#include <map>

namespace moeloom {

/// How a folder of tensors covers a model.
struct WeightCoverage {
  Index expected = 0;               // tensors of the whole model
  Index found = 0;                  // of those
  std::vector<std::string> unused;  // accepted but not read: the stored copy of a tied head
};

/// Names, shapes and number formats of the whole model, whatever this rank holds. Throws ConfigError that
/// lists every tensor that is missing, unexpected, of another shape or of a format other than F32, BF16, F16.
WeightCoverage check_weights(const SafetensorsFolder& folder, const ModelConfig& config);

/// check_weights, then the values of this rank's slices. Not collective; one rank may fail to read alone.
WeightCoverage load_weights(ParameterStore& store, const SafetensorsFolder& folder,
                            const ModelConfig& config);

/// Tensor name -> checksum of its bytes in the file, in hexadecimal.
using TensorChecksums = std::map<std::string, std::string>;

/// Writes the whole model as fp32 into the new file `path` -> checksums of all its tensors, on every rank.
/// Dense weights come from world rank 0, experts from the ranks of dp_rank 0. Collective over the world;
/// throws AgreedError on every rank if one could not write, and leaves what there is of the file.
TensorChecksums save_weights(const ParameterStore& store, const ModelConfig& config, const Mesh& mesh,
                             const std::filesystem::path& path);

/// Whether this rank is the one that writes the parameters of a placement.
bool writes(const Mesh& mesh, Placement placement);

/// Every tensor of the model as the file has it, each name behind `prefix`, in the order of the parameters.
std::vector<TensorSpec> tensor_specs(const ModelConfig& config, const std::string& prefix = "");

/// Elements [begin, begin + values.size()) of a tensor in a file that the ranks write together.
struct TensorPart {
  std::string name;
  Index begin = 0;
  std::span<const float> values;
};

/// Makes the file and writes every rank's parts, which together should cover it. Collective; throws
/// AgreedError.
void write_parts(const Communicator& world, const std::filesystem::path& path,
                 const std::vector<TensorSpec>& specs, const std::vector<TensorPart>& parts);

}  // namespace moeloom
