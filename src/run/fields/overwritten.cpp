#include "fields/overwritten.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Of models and adapters as transformers and PEFT have them, and of runs.
bool is_read_by_name(const fs::path& file) {
  constexpr std::array<std::string_view, 16> kNames = {"config.json",
                                                       "generation_config.json",
                                                       "tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "vocab.json",
                                                       "merges.txt",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "chat_template.jinja",
                                                       "chat_template.json",
                                                       "adapter_config.json",
                                                       "manifest.json",
                                                       "trainer_state.json",
                                                       "train.conf",
                                                       "metrics.jsonl",
                                                       "model.safetensors.index.json"};
  return file.extension() == ".safetensors" || std::ranges::count(kNames, file.filename().string()) > 0;
}

bool overwrites(const fs::path& output, const fs::path& input) {
  if (output.empty() || input.empty()) return false;
  std::error_code ignored;
  if (!fs::is_directory(input, ignored)) return is_same_file(output, input);
  return is_read_by_name(output) && fs::exists(output, ignored) && lies_in(output, input);
}

}  // namespace

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code failure;
  return fs::equivalent(one, other, failure) && !failure;
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  std::error_code failure;
  fs::path place = fs::weakly_canonical(fs::absolute(file, failure).parent_path(), failure);
  if (failure) return false;
  for (; !is_same_file(place, folder); place = place.parent_path())
    if (!place.has_relative_path()) return false;
  return true;
}

void refuse_overwriting(const NamedPath& output, const std::vector<NamedPath>& inputs,
                        Violations& violations) {
  for (const auto& [option, path] : inputs)
    if (overwrites(output.path, path))
      violations.add("`" + output.option + "` " + output.path.string() + " would be written over " +
                     (is_same_file(output.path, path) ? "what" : "a file of the folder that") + " `" +
                     option + "` reads; choose another name");
}

}  // namespace moeloom
