// Recorded routing: which experts each token of some steps went to, and with what weights, by sparse layer.
//
// A safetensors file, of each step two tensors [layers, tokens, top_k]:
//
//   step.000012.topk_idx      I16   -1 is no expert
//   step.000012.topk_weights  F16   those of a router lie near 1, where fp16 has eight times bf16's precision
//   text_hashes               I64   of all steps; 0: this one was not recorded, or is being
//
// RoutingHeading and the range of the steps are JSON under "routing" in __metadata__. The file has its full
// size from the start, so that a full disk is met there, and a kill loses nothing but the step under way.
#pragma once

#include "base/checksum.hpp"
#include "moeloom/io/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

/// What all steps of a file share.
struct RoutingHeading {
  std::string model_type = {};     // "qwen3_moe"
  std::string model_hash = {};     // of its config.json
  std::vector<Index> layers = {};  // numbers of the sparse layers, rising
  Index experts = 0;
  Index top_k = 0;
  Index sequence_length = 0;
  Index tokens = 0;  // of a step, over all ranks
  std::uint64_t seed = 0;

  bool operator==(const RoutingHeading&) const = default;
};

struct RecordedStep {
  Index number = 0;
  std::uint64_t text_hash = 0;  // text_hash() of its tokens
};

/// Of one layer in one step; -1 in topk_idx is no expert.
struct RecordedRouting {
  std::vector<std::int32_t> topk_idx;  // [T, K]
  std::vector<float> topk_weights;     // [T, K]
};

/// XXH3 of token ids, in global token order; never 0.
std::uint64_t text_hash(std::span<const std::int32_t> token_ids);

/// A file of strangers: all but its weights, which may be any number, is checked before it is used.
class RoutingFile {
 public:
  /// Throws IoError: missing, no recorded routing, cut off, or with sizes that contradict each other.
  explicit RoutingFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const RoutingHeading& heading() const { return heading_; }
  /// Reads the whole file; another one has another.
  std::uint64_t checksum() const { return moeloom::checksum(file_.bytes()); }
  /// By rising number; at least one.
  const std::vector<RecordedStep>& steps() const { return steps_; }
  /// Of steps()[step] and heading().layers[layer]. Throws IoError for an expert that a token has twice or
  /// that the model has not. Threads may read at the same time.
  RecordedRouting read(Index step, Index layer) const;

 private:
  SafetensorsFile file_;
  RoutingHeading heading_;
  std::vector<RecordedStep> steps_;
};

/// Makes the file, or goes on with one; a step that is not whole in it is not recorded.
class RoutingFileWriter {
 public:
  /// Of the steps [from, to). keep_before > 0: of a file that is there, those before stay. Throws IoError,
  /// also where that is another recording; ShapeError for a heading or steps that no file can have.
  RoutingFileWriter(std::filesystem::path path, const RoutingHeading& heading, Index from, Index to,
                    Index keep_before = 0);
  RoutingFileWriter(const RoutingFileWriter&) = delete;
  RoutingFileWriter& operator=(const RoutingFileWriter&) = delete;

  void begin_step(Index number);
  /// The next layer of the step. Throws ShapeError unless both are [T, K].
  void add_layer(const RecordedRouting& routing);
  /// The step is on the disk. Throws IoError; ShapeError if a layer is missing.
  void end_step(std::uint64_t text_hash);

 private:
  /// Of steps from `first` on.
  void write_hashes(Index first, const std::vector<std::uint64_t>& hashes);

  std::filesystem::path path_;
  RoutingHeading heading_;
  Index from_ = 0;
  SafetensorsLayout layout_;
  std::unique_ptr<SafetensorsWriter> file_;  // of a step under way
  Index step_ = 0, layer_ = 0;               // the next layer
};

}  // namespace moeloom
