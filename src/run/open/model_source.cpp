#include "open/model_source.hpp"

#include "base/text.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "fields/train_fields.hpp"
#include "open/model_folder.hpp"
#include "open/run_folder.hpp"
#include "open/trained_part.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// -> its checkpoint, which was found whole.
fs::path open_resumed(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  const fs::path folder = inputs.weights = inputs.start.value().folder;
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

/// A folder with weights was looked through before.
fs::path open_folder(const fs::path& named, RunInputs& inputs) {
  if (inputs.start) return inputs.weights = inputs.start->folder;
  holds_config_alone(named);  // or says why what is there cannot be loaded
  return named;
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

/// Of the final sample: its prompt and what follows.
Index sample_positions(const RunOptions& run) {
  if (run.sample_chars <= 0) return 0;
  return static_cast<Index>(run.prompt.size()) + std::min(run.sample_chars, kLargestCount);
}

/// A model from flags generates what it is trained on, and the final sample.
ModelConfig with_positions(ModelConfig config, const TrainOptions& options) {
  const Index needed = std::min(options.batch.length, kLargestCount) + sample_positions(options.run);
  config.max_position_embeddings = std::max(config.max_position_embeddings, needed);
  return config;
}

/// What can be said of the model's routers.
void check_routers(const TrainOptions& options, const ModelConfig& config, Violations& violations) {
  violations.add(router_loss_violations(options, config));
  violations.add(routing_violations(options.run.routing, config));
  violations.add(router_violations(options, config));
}

/// The model's words, or those that `tokenizer` names. A model may have none: ids alone can be trained on.
void open_words(const TrainOptions& options, const fs::path& folder, RunInputs& inputs) {
  const fs::path& asked = options.model.tokenizer;
  const bool has_own = inputs.resumes && holds_tokenizer(folder);
  const fs::path& words = asked.empty() || has_own ? folder : asked;
  const bool is_there = holds_tokenizer(words);
  if (words == asked && !asked.empty() && !is_there)
    throw ConfigError({"`tokenizer` " + asked.string() + " has no tokenizer.json"});
  if (!words.empty()) inputs.words = read_word_files(words);
  if (is_there || inputs.config.vocab_size == 256)
    inputs.text = ModelText::of(words, inputs.config, "", options.model.ignored_keys);
}

/// Of a shape, as the options have it.
void open_new_model(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  inputs.config = with_positions(options.model.shape, options);
  inputs.config.vocab_size = vocabulary_of(options.model);
  open_words(options, {}, inputs);
  if (config_violations(inputs.config).empty()) check_routers(options, inputs.config, violations);
  inputs.config.hash_router = options.router.kind == RouterKind::kHash;
  open_trained_part(options, inputs, violations);
}

void check_mesh(const MeshOptions& mesh, Index world, const ModelConfig& config, Violations& violations) {
  if (config.has_experts() && mesh.ep > config.num_experts)
    violations.add(mesh_violations({mesh.dp, mesh.ep, mesh.order}, world, config.num_experts));
}

/// As a folder says it.
void open_written_model(const TrainOptions& options, const fs::path& folder, Index world, RunInputs& inputs,
                        Violations& violations) {
  inputs.config = ModelConfig::read(folder, options.model.ignored_keys);
  violations.add(config_violations(inputs.config));
  violations.add(shape_violations(options.model, inputs.config));
  open_words(options, folder, inputs);
  check_routers(options, inputs.config, violations);
  const bool of_adapter = options.optimizer.lora || inputs.config.adapter;
  violations.unless(
      !of_adapter || inputs.config.hash_router || options.router.kind != RouterKind::kHash,
      "`router` hash cannot be had with `lora`: an adapter's folder does not say how tokens choose, "
      "so that everyone else would let the router do it; remove it");
  inputs.config.hash_router |= options.router.kind == RouterKind::kHash;
  check_positions(options, folder, inputs.config, violations);
  check_mesh(options.mesh, world, inputs.config, violations);
  open_trained_part(options, inputs, violations);
  const NamePatterns& allowed = options.model.allow_missing;
  if (!inputs.weights.empty()) {
    const fs::path& base = inputs.config.adapter ? fs::path(inputs.config.adapter->base) : folder;
    const WeightCoverage coverage = check_weights(SafetensorsFolder(base), inputs.config, allowed);
    violations.unless(!of_adapter || coverage.missing.empty(),
                      "`lora` beside " + joined(coverage.missing) + ", which " + base.string() +
                          " lacks: an adapter does not hold what starts anew; choose a folder that has them");
  } else if (!allowed.empty())
    violations.add("`allow-missing` has nothing to allow: " + folder.string() +
                   " holds config.json only; remove it");
}

}  // namespace

void open_model(const TrainOptions& options, Index world, RunInputs& inputs, Violations& violations) {
  inputs.resumes = !options.run.resume.empty();
  if (!inputs.resumes && options.model.folder.empty()) return open_new_model(options, inputs, violations);
  const fs::path folder =
      inputs.resumes ? open_resumed(options, inputs, violations) : open_folder(options.model.folder, inputs);
  open_written_model(options, folder, world, inputs, violations);
}

}  // namespace moeloom
