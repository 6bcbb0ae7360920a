#include "open/run_setup.hpp"

#include "io/data_text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"
#include "open/model_folder.hpp"
#include "open/model_source.hpp"
#include "open/run_decision.hpp"
#include "open/run_folder.hpp"
#include "open/settled_options.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Text of everything that must be the same on all ranks.
std::string fingerprint(const TrainOptions& options, const RunFlags& flags) {
  std::string text = resolved_config(options);
  for (const std::string& given : flags.given) text += given + "\n";
  return text;
}

std::string differing_ranks(const std::vector<std::string>& texts) {
  std::string ranks;
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0]) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return ranks;
}

/// A model's folder says its vocabulary, which no option changes.
void check_ids(const fs::path& file, Index largest, const RunInputs& inputs, const ModelOptions& model,
               Violations& violations) {
  const Index vocabulary = inputs.config.vocab_size;
  if (largest < vocabulary) return;
  const bool from_flags = model.folder.empty() && !inputs.resumes;
  violations.add(file.string() + " holds token id " + std::to_string(largest) +
                 ", but vocab = " + std::to_string(vocabulary) +
                 (from_flags
                      ? "; set `vocab` to at least " + std::to_string(largest + 1) + ", or `data-format`"
                      : "; the ids are of another model's tokenizer, or of another `data-format`"));
}

/// One file as it lies; what has to be tokenized is only looked for.
void open_data(const TrainOptions& options, Index world, RunInputs& inputs, Violations& violations) {
  const DataOptions& data = options.data;
  if (data.sources.empty()) return;
  if (!trains_on_stream(data, inputs.text ? &*inputs.text : nullptr)) {
    for (const DataSource& source : data.sources)
      violations.attempt([&] { require_regular_file(source.file); });
    violations.unless(inputs.text.has_value(),
                      "to read " + names_of(data.sources) +
                          " a tokenizer.json is needed, in the folder of `model` or in "
                          "`tokenizer` DIR");
    return;
  }
  const fs::path& file = data.sources.front().file;
  const TokenFormat format = token_format(file, data.format);
  inputs.data.tokens = std::make_unique<TokenSource>(file, format);
  if (format == TokenFormat::kText) require_text(file, MappedFile(file).bytes());
  inputs.data.bytes = static_cast<Index>(fs::file_size(file));
  violations.add(split_violations(inputs.data.tokens->size(), data.heldout, options.batch.length, world));
  violations.unless(data.epochs == 0, "`epochs` counts examples, and " + file.filename().string() +
                                          " is one long text of ids; give `steps`");
  check_ids(file, inputs.data.tokens->largest_id(), inputs, options.model, violations);
}

/// Collective; throws AgreedError.
void open_examples_of(const TrainOptions& options, const RunFlags& flags, RunInputs& inputs,
                      const Communicator& world, const RunHost& host) {
  if (inputs.data.tokens) return;
  open_examples(options, flags, *inputs.text, world, host, inputs.data);
  agree(world, [&] {
    Violations violations;
    for (std::size_t i = 0; i < inputs.data.examples.size(); ++i)
      check_ids(options.data.sources[i].file, inputs.data.examples[i]->largest_id(), inputs, options.model,
                violations);
    violations.throw_if_any();
  });
}

/// Steps of --epochs; those of --steps where it was not given.
Index steps_of(const TrainOptions& asked, const RunInputs& inputs, Index world) {
  if (inputs.data.tokens) return asked.run.steps;
  const RunBatches batches(inputs.data, asked, world);
  if (asked.data.epochs == 0) return asked.run.steps;
  const Index steps = batches.examples()->steps_of(asked.data.epochs);
  if (inputs.recorded && steps <= inputs.recorded->step)
    throw ConfigError({"the run is at step " + std::to_string(inputs.recorded->step) +
                       " already, and `epochs` " + value_text(asked.data.epochs) + " are " +
                       std::to_string(steps) + " steps; give more of them"});
  return steps;
}

/// Values that nothing can be said against, where it was said already.
TrainOptions with_usable_data(TrainOptions options) {
  DataOptions& data = options.data;
  if (data.heldout < 0 || data.heldout >= 1) data.heldout = 0;
  options.batch.length = std::clamp<Index>(options.batch.length, 1, kLargestCount);
  return options;
}

/// The folder that the run starts from; empty: none that is known.
fs::path start_of(const TrainOptions& options) {
  if (!options.run.resume.empty()) return options.run.resume;
  try {
    const fs::path& model = options.model.folder;
    return model.empty() || holds_config_alone(model) ? fs::path() : model;
  } catch (const std::exception&) {
    return {};  // which is said when it is opened
  }
}

/// Looks for what is whole before any of it is read -> what is wrong. Collective; rank 0's options count.
std::string find_start(const TrainOptions& options, const Communicator& world, RunInputs& inputs) {
  const std::string start = world.all_gather_text(start_of(options).string()).front();
  if (start.empty()) return {};
  try {
    inputs.start = whole_checkpoint(start, world);
    return {};
  } catch (const AgreedError& error) {
    return error.what();
  }
}

void open_inputs(const TrainOptions& options, Index world, const std::string& start_error, RunInputs& inputs,
                 Violations& violations) {
  if (!start_error.empty()) violations.add(start_error, Cause::kData);
  bool model_known = start_error.empty();
  if (model_known)
    violations.attempt([&] {
      model_known = false;
      open_model(options, world, inputs, violations);
      model_known = true;
    });
  // A vocabulary that is not known bounds no token.
  if (!model_known) inputs.config.vocab_size = std::numeric_limits<Index>::max();
  violations.attempt([&] { open_data(with_usable_data(options), world, inputs, violations); });
  violations.attempt([&] { check_run_folder(options.run); });
}

/// The first of each: two checks may meet the same mistake.
std::vector<std::string> without_repeats(const std::vector<std::string>& texts) {
  std::vector<std::string> once;
  for (const std::string& text : texts)
    if (std::ranges::find(once, text) == once.end()) once.push_back(text);
  return once;
}

}  // namespace

RunSetup agree_on_run(const TrainOptions& asked, const Communicator& world, const RunHost& host) {
  RunSetup setup;
  TrainRequest& request = setup.request;
  // Before a checkpoint is chosen: a job that ends just now may write another.
  agree(world, [&] {
    const RunOptions& run = asked.run;
    if (world.rank() == 0 && goes_on_in_its_folder(run) && !checkpoints_of(run.folder).empty())
      setup.inputs.lock = std::make_unique<RunLock>(run.folder);
  });
  const std::string start_error = find_start(asked, world, setup.inputs);
  agree(world, [&] {
    Violations violations;
    violations.attempt([&] {
      if (host.flags) request.flags = host.flags();
    });
    violations.add(option_violations(asked, world.size()));
    violations.unless(request.flags.faults.empty() || asked.run.allow_faults,
                      "planned faults break a run on purpose; take them back, or allow them by "
                      "`allow-faults`");
    violations.attempt([&] { gmm_request(asked.kernels, request.flags); });
    open_inputs(asked, world.size(), start_error, setup.inputs, violations);
    if (!violations.empty()) throw ConfigError(without_repeats(violations.list()), violations.cause());
  });
  // What decides who takes part in reading the data.
  require_same_on_all_ranks(
      fingerprint(asked, request.flags) + (setup.inputs.data.tokens ? "ids" : "examples"), world);
  open_examples_of(asked, request.flags, setup.inputs, world, host);
  agree(world, [&] {
    request.options = settled(asked, setup.inputs, steps_of(asked, setup.inputs, world.size()));
    request.rate_reason = why_rate(asked, setup.inputs);
  });
  require_same_on_all_ranks(fingerprint(request.options, request.flags), world);
  return setup;
}

void require_same_on_all_ranks(const std::string& said, const Communicator& world) {
  const std::string ranks = differing_ranks(world.all_gather_text(said));
  if (!ranks.empty())
    throw AgreedError("options or environment differ between rank 0 and rank " + ranks +
                      "; give every rank the same (mpirun -x NAME exports a variable)");
}

void take_run_folder(const TrainOptions& options, RunInputs& inputs, const Communicator& world) {
  agree(world, [&] {
    if (world.rank() != 0) return;
    make_run_folder(options.run.folder);
    if (!inputs.lock) {
      inputs.lock = std::make_unique<RunLock>(options.run.folder);
      check_run_folder(options.run);  // again: another job may have held it until now
    }
    begin_run_folder(options);
  });
}

}  // namespace moeloom
