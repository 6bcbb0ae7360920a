// Recorded routing: which experts each token of some steps went to, and with what weights, by sparse layer.
//
//   "moeroute"
//   bytes of the heading, u64                     all numbers little-endian
//   the heading, a JSON object                    RoutingHeading
//   blocks, a zstd frame each                     of a step all sparse layers, then those of the next step
//   of each step: its number, the hash of its text, and of each block its bytes and its checksum, u64 each
//   number of steps, u64
//   checksum of the heading and of all that follows the blocks, u64
//   "moeroute"
//
// A block is ids and weights [T, K] of all tokens of a step, two bytes each, cut into four planes of T * K
// bytes because bytes of one kind compress best beside each other: the low bytes of the ids, their high bytes
// (0xFFFF is no expert), the low bytes of the weights, their high bytes. Weights are fp16: those of a router
// lie near 1, where fp16 has eight times the precision of bf16. The table stands at the end, as in a zip
// file, so that a run can record without knowing when it stops. A block that unpacks to more than 1 MiB has
// at least a byte for 1024 of them, if need be in a frame that zstd skips.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

class SystemFile;

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

/// XXH3 of token ids, in global token order.
std::uint64_t text_hash(std::span<const std::int32_t> token_ids);

/// A file of strangers: everything in it is checked before it is used.
class RoutingFile {
 public:
  /// Throws IoError: missing, of another format or version, cut off, damaged, or with sizes that contradict
  /// each other.
  explicit RoutingFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const RoutingHeading& heading() const { return heading_; }
  /// Another file has another one: over the heading and the checksums of all blocks.
  std::uint64_t checksum() const { return checksum_; }
  /// By rising number; at least one.
  const std::vector<RecordedStep>& steps() const { return steps_; }
  /// Of steps()[step] and heading().layers[layer]. Throws IoError for a block that is damaged, or that names
  /// an expert twice for one token or one that the model has not. Threads may read at the same time.
  RecordedRouting read(Index step, Index layer) const;

 private:
  friend class RoutingFileWriter;
  struct Block {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t checksum = 0;
  };
  const Block& block(Index step, Index layer) const;

  std::filesystem::path path_;
  MappedFile file_;
  RoutingHeading heading_;
  std::uint64_t checksum_ = 0;
  std::vector<RecordedStep> steps_;
  std::vector<Block> blocks_;  // [step, layer]
};

/// PATH.partial while it is written, PATH after finish(); nothing stays of a file that was not finished.
class RoutingFileWriter {
 public:
  /// Throws IoError; ShapeError for a heading that no file can have.
  RoutingFileWriter(std::filesystem::path path, const RoutingHeading& heading);
  RoutingFileWriter(const RoutingFileWriter&) = delete;
  RoutingFileWriter& operator=(const RoutingFileWriter&) = delete;
  ~RoutingFileWriter();

  /// The steps of a file with the same heading that lie before step number `before`, as they are there.
  void copy(const RoutingFile& file, Index before);
  /// Begins the next step; the one before has all its layers. Numbers rise.
  void begin_step(const RecordedStep& step);
  /// The next layer of the step. Throws ShapeError unless both are [T, K].
  void add_layer(const RecordedRouting& routing);
  /// Throws IoError, as for a full disk; ShapeError without a whole step.
  void finish();

  Index steps() const { return static_cast<Index>(steps_.size()); }

 private:
  void append(std::span<const std::byte> bytes);
  void append_block(std::span<const std::byte> bytes, std::uint64_t checksum);
  std::string table() const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  RoutingHeading heading_;
  std::string heading_text_;
  std::unique_ptr<SystemFile> file_;
  Index end_ = 0;
  std::vector<RecordedStep> steps_;
  std::vector<RoutingFile::Block> blocks_;
};

}  // namespace moeloom
