#include "model/hf/weights/word_files.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMoreTemplates = "additional_chat_templates";

bool goes_along(const std::string& name) {
  constexpr std::array kBeginnings = {"tokenizer", "special_tokens_map", "added_tokens",     "vocab.",
                                      "merges.",   "chat_template",      "generation_config"};
  return std::ranges::any_of(kBeginnings, [&](const char* beginning) { return name.starts_with(beginning); });
}

bool lies_in(const fs::path& folder, const fs::path& file) {
  return std::ranges::mismatch(folder, file).in1 == folder.end();
}

/// Links of Hugging Face's cache lead from snapshots/REVISION to blobs beside it.
void refuse_link_to_elsewhere(const fs::path& file, const fs::path& folder) {
  const fs::path home = fs::canonical(folder), place = fs::canonical(file);
  if (lies_in(home, place)) return;
  for (fs::path cache = home.parent_path(); cache.has_relative_path(); cache = cache.parent_path())
    if (cache.filename() == "snapshots" && lies_in(cache.parent_path() / "blobs", place)) return;
  throw IoError(file.string() + " is a link to " + place.string() +
                ", outside of the model's folder; put the file itself there, or remove the link");
}

}  // namespace

WordFiles read_word_files(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && goes_along(name)) names.push_back(name);
  }
  if (const fs::path more = folder / kMoreTemplates; fs::is_directory(more))
    for (const fs::directory_entry& entry : fs::directory_iterator(more))
      if (entry.is_regular_file() && entry.path().extension() == ".jinja")
        names.push_back(kMoreTemplates / entry.path().filename());
  std::ranges::sort(names);
  WordFiles files;
  for (const fs::path& name : names) {
    refuse_link_to_elsewhere(folder / name, folder);
    files.push_back({name, read_text_file(folder / name)});
  }
  return files;
}

void write_word_files(const WordFiles& files, const fs::path& folder) {
  for (const auto& [name, bytes] : files) {
    fs::create_directories((folder / name).parent_path());
    replace_file(folder / name, bytes);
  }
}

}  // namespace moeloom
