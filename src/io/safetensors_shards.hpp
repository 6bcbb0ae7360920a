// A folder of tensors to be written as Hugging Face's save_pretrained writes it: model.safetensors, or where
// that would grow beyond a size, model-00001-of-0000N.safetensors and model.safetensors.index.json.
#pragma once

#include "io/manifest.hpp"
#include "moeloom/io/safetensors.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moeloom {

struct SafetensorsShard {
  std::string file_name;
  SafetensorsLayout layout;
};

/// Where everything goes; the same on every rank that is given the same specs.
struct ShardPlan {
  std::vector<SafetensorsShard> shards;
  std::map<std::string, std::size_t> shard_of;  // by tensor
  std::string index;                            // the index file's text; empty for a single file
};

/// Tensors in the order given, as many to a shard as fit into shard_bytes of data; one that is larger has a
/// shard of its own. Throws ShapeError for a name given twice.
ShardPlan plan_shards(const std::vector<TensorSpec>& specs, Index shard_bytes = kShardBytes);

/// One file of any name and size.
ShardPlan plan_single_file(const std::string& file_name, const std::vector<TensorSpec>& specs);

/// Makes every file of the plan at its full size, and the index, beside which an older single file of weights
/// is removed; throws IoError. One rank calls it -> the pieces that begin in a header.
std::vector<FilePiece> create_shards(const std::filesystem::path& folder, const ShardPlan& plan);

/// Writes into files that create_shards made; opens those it is given something for. The plan must outlive
/// it. Not for several threads at once.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, const ShardPlan& plan);
  /// As SafetensorsWriter's.
  void write(const std::string& tensor, Index begin, std::span<const float> values);
  void write_bytes(const std::string& tensor, Index begin, std::span<const std::byte> bytes);
  void close();
  /// Of all files, those whose first byte was written here: with what create_shards began, every piece of a
  /// file that was written whole is begun once.
  std::vector<FilePiece> begun_pieces() const;

 private:
  SafetensorsWriter& writer_of(const std::string& tensor);

  std::filesystem::path folder_;
  const ShardPlan& plan_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // by shard
};

}  // namespace moeloom
