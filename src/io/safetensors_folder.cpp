// A checkpoint folder as one set of tensors, whether it is one file or shards with an index.
#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"
#include "moeloom/io/safetensors.hpp"

#include "json.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

/// A shard is a file of this folder: an index may not point elsewhere.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

/// The index's table from tensor name to shard.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  const MappedFile file(index);
  const auto bytes = file.bytes();
  const auto json =
      parse_json<nlohmann::json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, index.string());
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw IoError(index.string() + ": key \"weight_map\": expected an object from tensor names to shards");
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get<std::string>()))
      throw IoError(index.string() + ": weight_map: \"" + name +
                    "\": expected the name of a file in this folder, found " + described(shard));
    shard_of[name] = shard.get<std::string>();
  }
  return shard_of;
}

void check_that_index_and_shard_agree(const std::filesystem::path& index,
                                      const std::map<std::string, std::string>& shard_of,
                                      const SafetensorsFile& shard) {
  for (const auto& [name, info] : shard.tensors()) {
    const auto listed = shard_of.find(name);
    if (listed == shard_of.end() || listed->second != shard.path().filename())
      throw IoError(shard.path().string() + ": holds tensor \"" + name + "\", but " + index.string() +
                    " says " +
                    (listed == shard_of.end() ? "nothing about it" : "it is in " + listed->second));
  }
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) : folder_(folder) {
  if (is_there(folder / kWeightsFile)) {
    files_.emplace_back(folder / kWeightsFile);
    for (const auto& [name, info] : files_[0].tensors()) home_[name] = 0;
    return;
  }
  const std::filesystem::path index = folder / kWeightsIndexFile;
  if (!is_there(index))
    throw IoError(folder.string() + ": expected " + kWeightsFile + " or " + kWeightsIndexFile +
                  ", found neither");
  const auto shard_of = read_weight_map(index);
  std::map<std::string, std::size_t> place_of_shard;
  for (const auto& [name, shard] : shard_of) {
    const auto [place, is_new] = place_of_shard.try_emplace(shard, files_.size());
    if (is_new) {
      files_.emplace_back(folder / shard);
      check_that_index_and_shard_agree(index, shard_of, files_.back());
    }
    // What an index names and no shard holds is missed only by who needs it: some are left from tensors that
    // were taken out, as those of multi-token prediction.
    if (files_[place->second].has(name))
      home_[name] = place->second;
    else
      absent_.push_back(name);
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : home_) names.push_back(name);
  return names;
}

const SafetensorsFile& SafetensorsFolder::file_of(const std::string& name) const {
  const auto found = home_.find(name);
  if (found == home_.end())
    throw IoError(folder_.string() + ": has no tensor \"" + name + "\" among its " +
                  std::to_string(home_.size()));
  return files_[found->second];
}

void SafetensorsFolder::read(const std::string& name, Index begin, std::span<float> target) const {
  file_of(name).read(name, begin, target);
}

}  // namespace moeloom
