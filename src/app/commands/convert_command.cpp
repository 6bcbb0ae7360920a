#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/io/new_folder.hpp"
#include "moeloom/train/checkpoint/verify.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "run/report/run_report.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// What belongs to a model beside its config and weights: its words.
bool goes_along(const std::string& name) {
  constexpr std::array kBeginnings = {"tokenizer", "special_tokens_map", "added_tokens",     "vocab.",
                                      "merges.",   "chat_template",      "generation_config"};
  return std::ranges::any_of(kBeginnings, [&](const char* beginning) { return name.starts_with(beginning); });
}

bool lies_in(const fs::path& folder, const fs::path& file) {
  return std::ranges::mismatch(folder, file).in1 == folder.end();
}

/// Copied byte for byte into what may be published, so a stranger's link to a file of ours is not followed.
/// Links of Hugging Face's cache lead from snapshots/REVISION to blobs beside it.
void refuse_link_to_elsewhere(const fs::path& file, const fs::path& folder) {
  const fs::path home = fs::canonical(folder), place = fs::canonical(file);
  if (lies_in(home, place)) return;
  const fs::path cache = home.parent_path();
  if (cache.filename() == "snapshots" && lies_in(cache.parent_path() / "blobs", place)) return;
  throw IoError(file.string() + " is a link to " + place.string() +
                ", outside of the model's folder; put the file itself there, or remove the link");
}

void copy_words(const fs::path& source, const fs::path& target) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (!entry.is_regular_file() || !goes_along(entry.path().filename().string())) continue;
    refuse_link_to_elsewhere(entry.path(), source);
    fs::copy_file(entry.path(), target / entry.path().filename());
  }
}

struct Converted {
  Recipes recipes;
  Document config;
};

Converted converted(const SafetensorsFolder& tensors, const Document& config, const ConvertOptions& options) {
  Converted result{copies_of(tensors), config};
  if (options.upcycling) {
    result.recipes = upcycled(result.recipes, config, *options.upcycling);
    result.config = upcycled_config(config, *options.upcycling);
  }
  if (options.layout)
    result.recipes = in_layout(result.recipes, *options.layout, result.config.text("model_type"));
  if (options.dtype) set_weights_dtype(result.config, *options.dtype);
  return result;
}

void write_folder(const SafetensorsFolder& tensors, const Converted& model, const fs::path& source,
                  const ConvertOptions& options) {
  const fs::path partial = partial_folder(options.target);
  write_recipes(tensors, model.recipes, partial,
                {.shard_bytes = options.shard_bytes, .dtype = options.dtype, .seed = options.seed});
  model.config.write(partial / "config.json");
  copy_words(source, partial);
}

}  // namespace

int convert_command(int argc, char** argv) {
  const ConvertOptions options = parse_convert_options(argc, argv);
  const CheckedFolder start = whole_checkpoint(options.source, Communicator::self());
  for (const Event& warning : start_warnings(start)) Log(LogSettings()).warn(warning);
  const fs::path& source = start.folder;
  const SafetensorsFolder tensors(source);
  const Converted model = converted(tensors, Document::read(source / "config.json"), options);
  begin_folder(options.target);
  try {
    write_folder(tensors, model, source, options);
    add_manifest(partial_folder(options.target), Communicator::self());
    publish_folder(options.target);
  } catch (...) {
    discard_folder(options.target);
    throw;
  }
  const SafetensorsFolder written(options.target);
  std::printf("%s: %s, %zu tensors in %zu file(s), from %s with %zu\n", options.target.c_str(),
              model.config.text("model_type").c_str(), written.names().size(), written.files().size(),
              source.c_str(), tensors.names().size());
  return 0;
}

}  // namespace moeloom
