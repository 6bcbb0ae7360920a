#include "open/model_source.hpp"

#include "base/text.hpp"
#include "base/violations.hpp"
#include "io/manifest.hpp"
#include "model/freeze.hpp"
#include "model/hf/adapter.hpp"
#include "model/hf/parameter_specs.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>

#include "fields/adapter_text.hpp"
#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"
#include "open/run_folder.hpp"
#include "open/run_settings.hpp"

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

/// What was found whole, where that was looked for.
fs::path found(const RunInputs& inputs, const fs::path& path) {
  return inputs.start ? inputs.start->folder : resolve_checkpoint(path);
}

fs::path open_resumed(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  const fs::path folder = found(inputs, options.run.resume);
  inputs.weights = folder;
  if (!is_checkpoint(folder)) {
    violations.add("`resume` " + folder.string() +
                   " has no optimizer state; `model` starts from its weights");
    return folder;
  }
  inputs.recorded = TrainerState::from(Document::read(folder / "trainer_state.json"));
  const std::string optimizer = inputs.recorded->settings.text_or("optimizer", "adamw");
  if (const std::string_view asked = name_of(options.keeping.optimizer); asked != optimizer)
    violations.add("`optimizer` " + std::string(asked) + ": the run that is resumed has the moments of " +
                   optimizer + "; give `optimizer` " + optimizer +
                   ", or start from its weights with `model`");
  const std::string done = std::to_string(inputs.recorded->step);
  const Index left = options.run.steps - inputs.recorded->step;
  const bool is_done = left < 0 || (left == 0 && !lacks_its_end(options.run));
  if (options.data.epochs == 0 && is_done)
    violations.add("the run is at step " + done + " already; `steps` " + std::to_string(options.run.steps) +
                   " leaves nothing to do; give `steps` above " + done);
  return folder;
}

fs::path open_folder(const TrainOptions& options, RunInputs& inputs) {
  if (holds_config_alone(options.model.folder)) return options.model.folder;
  return inputs.weights = found(inputs, options.model.folder);
}

void check_positions(const TrainOptions& options, const fs::path& folder, const ModelConfig& config,
                     Violations& violations) {
  const Index length = options.batch.length;
  const Index positions = config.max_position_embeddings;
  if (length <= positions) return;
  violations.add("seq-len = " + std::to_string(length) + " is longer than max_position_embeddings = " +
                 std::to_string(positions) + " in " + (folder / "config.json").string() +
                 ": what is learnt of the last " + std::to_string(length - positions) +
                 " positions could not be used; choose `seq-len` up to " + std::to_string(positions) +
                 ", or raise it there");
}

/// What --freeze names, or where it is not given what the resumed run had frozen.
void open_frozen(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  const NamePatterns& patterns = options.optimizer.freeze;
  if (patterns.empty() && inputs.recorded)
    inputs.frozen = {inputs.recorded->frozen.begin(), inputs.recorded->frozen.end()};
  if (patterns.empty() || !config_violations(inputs.config).empty()) return;
  const auto specs = parameter_specs(inputs.config, {0, inputs.config.num_experts});
  try {
    inputs.frozen = matching_parameters(specs, patterns);
  } catch (const ConfigError& error) {
    for (const std::string& violation : error.violations()) violations.add("`freeze`: " + violation);
  }
  const auto rests = [&](const ParameterSpec& spec) {
    return spec.frozen || inputs.frozen.contains(spec.name);
  };
  if (std::ranges::all_of(specs, rests))
    violations.add("`freeze` " + joined(patterns, ",") + " leaves nothing to train");
}

/// "an adapter of r = 4, scale 2 and dropout 0.1"
std::string words_of(const AdapterSettings& adapter) {
  return "an adapter of r = " + std::to_string(adapter.rank) + ", scale " + number_text(adapter.scale()) +
         " and dropout " + number_text(adapter.dropout);
}

/// What --lora asks for, or what the resumed run trains.
void open_adapter(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  if (inputs.recorded && inputs.config.adapter) {
    double& dropout = inputs.config.adapter->dropout;
    dropout = inputs.recorded->settings.number_or(kDropoutSetting, dropout);
    violations.unless_below_one(
        std::string(kDropoutSetting) + " in " + (inputs.weights / "trainer_state.json").string(), dropout);
  }
  const std::optional<AdapterSettings>& asked = options.optimizer.lora;
  if (!asked) return;
  if (inputs.resumes) {
    const std::optional<AdapterSettings>& trained = inputs.config.adapter;
    const bool same = trained && trained->rank == asked->rank && trained->scale() == asked->scale() &&
                      trained->dropout == asked->dropout;
    if (!same)
      violations.add("`lora` " + adapter_text(asked) + ": the run that is resumed trains " +
                     (trained ? words_of(*trained) : std::string("its own weights")) +
                     "; leave `lora` as it is in its train.conf, or begin a new run");
    return;
  }
  if (inputs.weights.empty()) {
    violations.add("`lora` needs `model` with weights: an adapter adds to a model that is kept");
    return;
  }
  if (inputs.config.adapter) {
    violations.add("`model` " + options.model.folder.string() +
                   " is an adapter itself: go on with `resume`, or merge it first (convert `merge`)");
    return;
  }
  if (!config_violations(inputs.config).empty()) return;
  try {
    inputs.config.adapter = resolve_adapter(inputs.config, *asked);
    inputs.config.adapter->base = fs::absolute(inputs.weights).lexically_normal();
    inputs.config.adapter->base_stored = resting_storage(SafetensorsFolder(inputs.weights), inputs.config);
  } catch (const ConfigError& error) {
    for (const std::string& violation : error.violations()) violations.add("`lora`: " + violation);
  }
}

/// A model from flags generates what it is trained on, and the final sample.
ModelConfig with_positions(ModelConfig config, const TrainOptions& options) {
  const Index needed = std::min(options.batch.length, kLargestCount) + sample_positions(options.run);
  config.max_position_embeddings = std::max(config.max_position_embeddings, needed);
  return config;
}

/// A new model has a row for each id of its tokenizer, unless --vocab says otherwise.
Index vocabulary_of(const ModelOptions& model) {
  const bool given = std::ranges::find(model.shape_given, "vocab") != model.shape_given.end();
  if (given || model.tokenizer.empty() || !holds_tokenizer(model.tokenizer)) return model.shape.vocab_size;
  return Tokenizer::of_folder(model.tokenizer, model.ignored_keys).vocabulary_size();
}

}  // namespace

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

Index sample_positions(const RunOptions& run) {
  if (run.sample_chars <= 0) return 0;
  return static_cast<Index>(run.prompt.size()) + std::min(run.sample_chars, kLargestCount);
}

/// What can be said of the model's routers.
void check_routers(const TrainOptions& options, const ModelConfig& config, Violations& violations) {
  violations.add(router_loss_violations(options, config));
  violations.add(routing_violations(options.run.routing, config));
  violations.add(router_violations(options, config));
}

/// The model's words, or those that --tokenizer names. A model may have none: ids alone can be trained on.
void open_words(const TrainOptions& options, const fs::path& folder, RunInputs& inputs) {
  const bool has_own = inputs.resumes && holds_tokenizer(folder);
  const fs::path words = options.model.tokenizer.empty() || has_own ? folder : options.model.tokenizer;
  if (words == options.model.tokenizer && !words.empty() && !holds_tokenizer(words))
    throw ConfigError({"`tokenizer` " + words.string() + " has no tokenizer.json"});
  if (!words.empty()) inputs.words = read_word_files(words);
  if (holds_tokenizer(words) || inputs.config.vocab_size == 256)
    inputs.text = ModelText::of(words, inputs.config, "", options.model.ignored_keys);
}

void open_model(const TrainOptions& options, Index world, RunInputs& inputs, Violations& violations) {
  inputs.resumes = !options.run.resume.empty();
  inputs.config = with_positions(options.model.shape, options);
  if (!inputs.resumes && options.model.folder.empty()) {
    inputs.config.vocab_size = vocabulary_of(options.model);
    open_words(options, {}, inputs);
    if (config_violations(inputs.config).empty()) check_routers(options, inputs.config, violations);
    inputs.config.hash_router = options.router.kind == RouterKind::kHash;
    open_adapter(options, inputs, violations);
    return open_frozen(options, inputs, violations);
  }
  const fs::path folder =
      inputs.resumes ? open_resumed(options, inputs, violations) : open_folder(options, inputs);
  inputs.config = ModelConfig::read(folder, options.model.ignored_keys);
  violations.add(config_violations(inputs.config));
  violations.add(shape_violations(options.model, inputs.config));
  open_words(options, folder, inputs);
  check_routers(options, inputs.config, violations);
  inputs.config.hash_router |= options.router.kind == RouterKind::kHash;
  check_positions(options, folder, inputs.config, violations);
  const Index experts = inputs.config.has_experts() ? inputs.config.num_experts : 0;
  if (options.mesh.ep >= 1 && options.mesh.ep > experts && experts > 0)
    violations.add(mesh_violations({options.mesh.dp, options.mesh.ep, options.mesh.order}, world, experts));
  open_adapter(options, inputs, violations);
  open_frozen(options, inputs, violations);
  const NamePatterns& allowed = options.model.allow_missing;
  if (!inputs.weights.empty())
    check_weights(SafetensorsFolder(inputs.config.adapter ? inputs.config.adapter->base : folder),
                  inputs.config, allowed);
  else if (!allowed.empty())
    violations.add("`allow-missing` has nothing to allow: " + folder.string() +
                   " holds config.json only; remove it");
}

}  // namespace moeloom
