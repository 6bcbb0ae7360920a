#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/io/new_folder.hpp"
#include "moeloom/model/hf/adapter.hpp"
#include "moeloom/model/hf/word_files.hpp"
#include "moeloom/train/checkpoint/verify.hpp"

#include <cstdio>

#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "run/report/run_report.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

struct Converted {
  Recipes recipes;
  Document config;
};

Converted converted(const SafetensorsFolder& tensors, const Document& config, const ConvertOptions& options) {
  Converted result{copies_of(tensors), config};
  if (!options.merge.empty()) result.recipes = merged(result.recipes, read_adapter_settings(options.merge));
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
                {.shard_bytes = options.shard_bytes,
                 .dtype = options.dtype,
                 .seed = options.seed,
                 .model_type = model.config.text_or("model_type", ""),
                 .adapter = options.merge});
  model.config.write(partial / "config.json");
  write_word_files(read_word_files(source), partial);
}

}  // namespace

int convert_command(int argc, char** argv) {
  ConvertOptions options = parse_convert_options(argc, argv);
  if (!options.merge.empty()) options.merge = resolve_checkpoint(options.merge);
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
