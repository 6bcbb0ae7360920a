// What a run trains on, opened: one file of tokens as they lie, or examples of one or several files.
#pragma once

#include "io/example_file.hpp"
#include "moeloom/base/position_board.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/run/flags.hpp"
#include "moeloom/run/options.hpp"
#include "train/batch_source.hpp"
#include "train/example_batches.hpp"

#include "data/prepare_examples.hpp"
#include "record/log.hpp"
#include "words/model_text.hpp"

namespace moeloom {

struct RunData {
  std::unique_ptr<TokenSource> tokens;                 // none: `examples` are trained on
  std::vector<std::unique_ptr<ExampleFile>> examples;  // of each source
  std::vector<Prepared> prepared;                      // how they came about
  Index bytes = 0;                                     // of all files
};

/// Whether the one file is trained on as it lies: token ids, or text whose bytes are ids.
bool trains_on_stream(const DataOptions& data, const ModelText* text);

/// Tokenizes what is not tokenized yet, on rank 0, and opens it everywhere. Files lie where all ranks read
/// them. Collective; throws AgreedError. `text`: the model's, which must outlive nothing.
void open_examples(const TrainOptions& options, const RunFlags& flags, const ModelText& text,
                   const Communicator& world, const RunHost& host, RunData& data);

/// Batches of either kind.
class RunBatches {
 public:
  /// `data` must outlive it. Throws ShapeError, ConfigError.
  RunBatches(const RunData& data, const TrainOptions& options, Index world);

  BatchSource source() const;
  std::vector<Batch> heldout(Index count, Index per_batch, Index rank) const;
  /// Of examples that a rank holds already, and that it will hold of them at most.
  Index held_bytes() const { return examples_ ? examples_->table_bytes() : 0; }
  Index most_bytes() const { return examples_ ? examples_->table_bytes() + examples_->mapped_bytes() : 0; }
  /// None where a stream of tokens is trained on.
  const ExampleBatches* examples() const { return examples_ ? &*examples_ : nullptr; }

 private:
  std::optional<BatchSampler> sampler_;
  std::optional<ExampleBatches> examples_;
};

/// The data in a line a source: name and numbers, for the log and the report.
std::vector<std::pair<std::string, std::string>> facts_of(const RunData& data, const DataOptions& options,
                                                          const std::string& unit);
/// How examples came about, at how many bytes a second, and what was left out of them.
void say(const Prepared& prepared, const Log& log);
/// What each source gave to the steps before `step`.
std::vector<Event> progress_events(const RunData& data, const DataOptions& options,
                                   const ExampleBatches& batches, Index step);

}  // namespace moeloom
