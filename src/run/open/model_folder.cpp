#include "open/model_folder.hpp"

#include "base/text.hpp"
#include "io/manifest.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/text/tokenizer.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <array>

#include "words/model_text.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

bool looks_like_weights(const fs::path& file) {
  constexpr std::array kEndings = {".safetensors", ".bin", ".pt", ".pth", ".gguf"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end();
}

/// By name, so that a link to nothing is among them.
std::vector<fs::path> weights_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (looks_like_weights(entry.path())) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::string names_of(const std::vector<fs::path>& files) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    if (names.size() == kMost) break;
    names.push_back(file.filename().string() + (fs::exists(file) ? "" : " (a link to nothing)"));
  }
  const std::size_t more = files.size() - names.size();
  return joined(names) + (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

}  // namespace

Index vocabulary_of(const ModelOptions& model) {
  const bool given = std::ranges::find(model.shape_given, "vocab") != model.shape_given.end();
  if (given || model.tokenizer.empty() || !holds_tokenizer(model.tokenizer)) return model.shape.vocab_size;
  return Tokenizer::of_folder(model.tokenizer, model.ignored_keys).vocabulary_size();
}

ModelConfig config_of(const ModelOptions& model) {
  if (model.folder.empty()) {
    ModelConfig config = model.shape;
    config.vocab_size = vocabulary_of(model);
    return config;
  }
  return ModelConfig::read(
      std::filesystem::exists(model.folder / "config.json") ? model.folder : resolve_checkpoint(model.folder),
      model.ignored_keys);
}

bool holds_config_alone(const fs::path& folder) {
  if (!fs::exists(folder / "config.json") || fs::exists(folder / kWeightsFile) ||
      fs::exists(folder / kWeightsIndexFile))
    return false;
  const std::vector<fs::path> weights = weights_in(folder);
  if (weights.empty() && fs::exists(folder / kManifestFile))
    throw IoError(folder.string() + " has lost " + kWeightsFile + ", which its " + kManifestFile +
                  " tells of; remove that file too to start from initial weights");
  if (weights.empty()) return true;
  const bool any_safetensors =
      std::ranges::any_of(weights, [](const fs::path& file) { return file.extension() == ".safetensors"; });
  throw IoError(folder.string() + " holds " + names_of(weights) + ", but no weights that can be loaded: " +
                (any_safetensors
                     ? "expected model.safetensors, or model.safetensors.index.json, which says what each "
                       "shard holds; add it"
                     : "only safetensors are read; convert them") +
                ", or leave config.json alone in a folder to start from initial weights");
}

fs::path resolve_adapter_folder(const fs::path& named) {
  try {
    return resolve_checkpoint(named);
  } catch (const IoError&) {
    if (fs::is_directory(named)) return named;
    throw;
  }
}

}  // namespace moeloom
