#include "open/trained_part.hpp"

#include "base/text.hpp"
#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "fields/adapter_text.hpp"
#include "open/run_folder.hpp"
#include "open/run_settings.hpp"

namespace moeloom {
namespace {

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
    inputs.config.adapter->base = std::filesystem::absolute(inputs.weights).lexically_normal();
    inputs.config.adapter->base_stored = resting_storage(SafetensorsFolder(inputs.weights), inputs.config);
  } catch (const ConfigError& error) {
    for (const std::string& violation : error.violations()) violations.add("`lora`: " + violation);
  }
}

}  // namespace

void open_trained_part(const TrainOptions& options, RunInputs& inputs, Violations& violations) {
  open_adapter(options, inputs, violations);
  if (const auto& adapter = inputs.config.adapter; adapter && overwrites(options.run, adapter->base))
    violations.add("`overwrite` would remove " + adapter->base.string() +
                   ", which the adapter adds to; choose another `run`");
  open_frozen(options, inputs, violations);
}

}  // namespace moeloom
