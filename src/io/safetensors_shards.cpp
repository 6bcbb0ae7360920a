#include "io/safetensors_shards.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "json.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

Index bytes_of_tensor(const TensorSpec& spec) {
  Index bytes = bytes_of(spec.dtype);
  for (const Index size : spec.shape)
    require(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes),
            "tensor \"" + spec.name + "\" needs sizes of at least 0 that fit a file");
  return bytes;
}

std::vector<std::vector<TensorSpec>> dealt(const std::vector<TensorSpec>& specs, Index shard_bytes) {
  std::vector<std::vector<TensorSpec>> shards(1);
  Index filled = 0;
  for (const TensorSpec& spec : specs) {
    const Index bytes = bytes_of_tensor(spec);
    if (!shards.back().empty() && bytes > shard_bytes - filled) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(spec);
  }
  return shards;
}

/// Five digits at least, as HF has them.
std::string shard_name(std::size_t shard, std::size_t shards) {
  char name[80];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
  return name;
}

std::string index_text(const ShardPlan& plan, const std::vector<TensorSpec>& specs) {
  Index total = 0;
  for (const TensorSpec& spec : specs)
    require(!__builtin_add_overflow(total, bytes_of_tensor(spec), &total),
            "the tensors need more bytes than can be counted");
  nlohmann::json weight_map = nlohmann::json::object();
  for (const auto& [tensor, shard] : plan.shard_of) weight_map[tensor] = plan.shards[shard].file_name;
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace

ShardPlan plan_single_file(const std::string& file_name, const std::vector<TensorSpec>& specs) {
  ShardPlan plan;
  for (const TensorSpec& spec : specs) plan.shard_of[spec.name] = 0;
  plan.shards.push_back({file_name, plan_safetensors(specs, {{"format", "pt"}})});
  return plan;
}

ShardPlan plan_shards(const std::vector<TensorSpec>& specs, Index shard_bytes) {
  require(shard_bytes > 0, "a shard needs at least one byte");
  const auto parts = dealt(specs, shard_bytes);
  ShardPlan plan;
  for (std::size_t shard = 0; shard < parts.size(); ++shard) {
    for (const TensorSpec& spec : parts[shard])
      require(plan.shard_of.emplace(spec.name, shard).second, "tensor \"" + spec.name + "\" is given twice");
    plan.shards.push_back({parts.size() == 1 ? kWeightsFile : shard_name(shard, parts.size()),
                           plan_safetensors(parts[shard], {{"format", "pt"}})});
  }
  if (parts.size() > 1) plan.index = index_text(plan, specs);
  return plan;
}

std::vector<FilePiece> create_shards(const std::filesystem::path& folder, const ShardPlan& plan) {
  std::vector<FilePiece> begun;
  for (const auto& [name, layout] : plan.shards) {
    create_safetensors(folder / name, layout);
    for (FilePiece& piece : pieces_of(name, layout.file_bytes))
      if (piece.begin < std::ssize(layout.header)) begun.push_back(std::move(piece));
  }
  if (plan.index.empty()) return begun;
  replace_file(folder / kWeightsIndexFile, plan.index);
  remove_file(folder / kWeightsFile);  // readers would take it before an index
  return begun;
}

ShardWriter::ShardWriter(std::filesystem::path folder, const ShardPlan& plan)
    : folder_(std::move(folder)), plan_(plan), writers_(plan.shards.size()) {}

SafetensorsWriter& ShardWriter::writer_of(const std::string& tensor) {
  const auto found = plan_.shard_of.find(tensor);
  require(found != plan_.shard_of.end(),
          "tensor \"" + tensor + "\" is not in the plan of " + folder_.string());
  auto& writer = writers_[found->second];
  const SafetensorsShard& shard = plan_.shards[found->second];
  if (!writer) writer = std::make_unique<SafetensorsWriter>(folder_ / shard.file_name, shard.layout);
  return *writer;
}

void ShardWriter::write(const std::string& tensor, Index begin, std::span<const float> values) {
  writer_of(tensor).write(tensor, begin, values);
}

void ShardWriter::write_bytes(const std::string& tensor, Index begin, std::span<const std::byte> bytes) {
  writer_of(tensor).write_bytes(tensor, begin, bytes);
}

std::vector<FilePiece> ShardWriter::begun_pieces() const {
  std::vector<FilePiece> begun;
  for (std::size_t shard = 0; shard < writers_.size(); ++shard) {
    if (!writers_[shard]) continue;
    const auto& [name, layout] = plan_.shards[shard];
    for (const Index piece : writers_[shard]->begun_pieces())
      begun.push_back(
          {name, piece * kPieceBytes, std::min(kPieceBytes, layout.file_bytes - piece * kPieceBytes)});
  }
  return begun;
}

void ShardWriter::close() {
  for (const auto& writer : writers_)
    if (writer) writer->close();
}

}  // namespace moeloom
