#include "base/text.hpp"
#include "io/new_folder.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/word_files.hpp"
#include "moeloom/base/errors.hpp"
#include "train/checkpoint/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <set>

#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "log/program_log.hpp"
#include "open/model_folder.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

struct Converted {
  Recipes recipes;
  Document config;
};

/// What --merge names; none where it is not given.
std::optional<AdapterMerge> opened_merge(ModelConfig config, const ConvertOptions& options) {
  const fs::path& adapter = options.merge;
  if (adapter.empty()) return std::nullopt;
  config.adapter = read_adapter_settings(adapter, config, options.ignored_keys);
  for (const std::string& remark : config.adapter->remarks)
    ProgramLog(LogSettings()).info(Event().with("adapter", remark));
  if (const Index left_out = modules_left_out(config); left_out > 0)
    ProgramLog(LogSettings()).warn(adapter_left_out(adapter, left_out));
  return AdapterMerge(adapter, config);
}

/// What is carried beside the text model stays as it is, also experts of further layers.
Recipes text_in_layout(Recipes recipes, ExpertFiles layout, const ModelConfig& model,
                       const std::string& model_type) {
  const std::set<std::string> beside(model.names.carried.names.begin(), model.names.carried.names.end());
  const auto carried = std::stable_partition(recipes.begin(), recipes.end(), [&](const TensorRecipe& recipe) {
    return !beside.contains(recipe.spec.name);
  });
  Recipes result = in_layout(Recipes(recipes.begin(), carried), layout, model_type);
  std::move(carried, recipes.end(), std::back_inserter(result));
  return result;
}

/// `model`: of the folder with these tensors.
Converted converted(const SafetensorsFolder& tensors, const ModelConfig& model, const ConvertOptions& options,
                    const AdapterMerge* merge) {
  const Document config = model.updated_source();
  Converted result{copies_of(tensors, model), config};
  if (merge != nullptr) result.recipes = merged(result.recipes, *merge);
  if (options.upcycling) {
    result.recipes = upcycled(result.recipes, config, *options.upcycling);
    result.config = upcycled_config(config, *options.upcycling);
  }
  if (options.layout)
    result.recipes =
        text_in_layout(std::move(result.recipes), *options.layout, model, result.config.text("model_type"));
  const bool was_fp8 = model.stored.as == StoredAs::kFp8;
  if (options.dtype || was_fp8) set_weights_dtype(result.config, options.dtype.value_or(DType::kBF16));
  return result;
}

void write_folder(const SafetensorsFolder& tensors, const Converted& model, const StoredForm& stored,
                  const fs::path& source, const fs::path& partial, const ConvertOptions& options,
                  const AdapterMerge* merge) {
  write_recipes(tensors, model.recipes, partial,
                {.shard_bytes = options.shard_bytes,
                 .dtype = options.dtype,
                 .seed = options.seed.value_or(0),
                 .model_type = model.config.text_or("model_type", ""),
                 .stored = stored,
                 .merge = merge});
  model.config.write(partial / "config.json");
  write_word_files(read_word_files(source), partial);
}

/// `write` the new folder, whole or not at all.
void make_folder(const fs::path& target, const std::function<void(const fs::path&)>& write) {
  NewFolder made(target);
  write(partial_folder(target));
  add_manifest(partial_folder(target), Communicator::self());
  made.publish();
}

/// A folder with config.json alone becomes a model that nobody has trained.
int write_new_model(const ConvertOptions& options) {
  const ModelConfig config = ModelConfig::read(options.source, options.ignored_keys);
  if (const auto violations = config_violations(config); !violations.empty()) throw ConfigError(violations);
  if (options.upcycling || options.layout || !options.merge.empty())
    throw ConfigError(
        {options.source.string() +
         " holds config.json only: its initial weights are written as they are; convert them then"});
  make_folder(options.target, [&](const fs::path& partial) {
    write_initial_weights(
        config, partial,
        {.shard_bytes = options.shard_bytes, .dtype = options.dtype, .seed = options.seed.value_or(0)});
    config.to_document(options.dtype.value_or(DType::kF32)).write(partial / "config.json");
    write_word_files(read_word_files(options.source), partial);
  });
  std::printf("%s: %s, %s initial parameters of seed %llu\n", options.target.c_str(),
              config.model_type.c_str(), std::to_string(config.total_parameters()).c_str(),
              static_cast<unsigned long long>(options.seed.value_or(0)));
  return 0;
}

}  // namespace

int convert_command(int argc, char** argv) {
  ConvertOptions options = parse_convert_options(argc, argv);
  if (!options.merge.empty()) options.merge = resolve_adapter_folder(options.merge);
  if (fs::is_directory(options.source) && holds_config_alone(options.source)) return write_new_model(options);
  if (options.seed && !options.upcycling)
    throw ConfigError({"--seed belongs to --experts N, or to a SOURCE with config.json only; remove it"});
  const CheckedFolder start = whole_checkpoint(options.source, Communicator::self());
  ProgramLog log({});
  for (const Event& warning : start_warnings(start)) log.warn(warning);
  const fs::path& source = start.folder;
  const SafetensorsFolder tensors(source);
  const ModelConfig config = ModelConfig::read(source, options.ignored_keys);
  for (const Event& remark : remarks_of(config)) log.info(remark);
  check_weights(tensors, config);  // nothing is written that train would refuse
  const std::optional<AdapterMerge> merge = opened_merge(config, options);
  const AdapterMerge* const merging = merge ? &*merge : nullptr;
  const Converted model = converted(tensors, config, options, merging);
  make_folder(options.target, [&](const fs::path& partial) {
    write_folder(tensors, model, config.stored, source, partial, options, merging);
  });
  if (options.upcycling)
    log.info(Event().with("train",
                          "copies of experts part if the router has to use them all: --aux-loss-coef 0.001"));
  const SafetensorsFolder written(options.target);
  std::printf("%s: %s, %zu tensors in %zu file(s), from %s with %zu\n", options.target.c_str(),
              model.config.text("model_type").c_str(), written.names().size(), written.files().size(),
              source.c_str(), tensors.names().size());
  return 0;
}

}  // namespace moeloom
