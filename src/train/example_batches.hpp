// Batches of examples from one or several files: packed into rows, mixed by weight, in an order that seed and
// step alone decide.
//
// A source deals its rows epoch after epoch. Examples without anything to learn are left out, so that every
// row has a target and no global batch is without. A row is looked up when it is read: no step has more to do
// than another, and what is held is counted.
#pragma once

#include "io/example_file.hpp"
#include "train/batch_sampler.hpp"
#include "train/mixture.hpp"
#include "train/packing.hpp"

#include <optional>
#include <span>
#include <vector>

namespace moeloom {

/// The examples of a file, whole.
std::vector<Piece> pieces_of(const ExampleFile& file);
/// Adds a sequence to a batch of sequence_length: the pieces of a row, each a segment, each id with the
/// learned one behind it as its target (the last of a piece has none); then padding, a segment that nothing
/// counts. Throws ShapeError for more tokens than a sequence has.
void append_row(const ExampleFile& file, std::span<const Piece> row, Batch& batch);

struct ExampleSource {
  const ExampleFile* file = nullptr;
  /// By the sum of all weights: its share of the rows. None, then of no source: as if all were one file.
  std::optional<double> weight = {};
};

struct ExampleBatchesSettings {
  BatchShape batch;  // a sequence is a row
  Index world = 1;   // ranks that it is dealt to
  std::uint64_t seed = 0;
  TooLong too_long = TooLong::kCut;
  double heldout =
      0;  // of each source's examples, which no seed changes; above 0 at least one of two and more
};

/// What became of a source.
struct ExampleCounts {
  Index examples = 0;   // of the file
  Index heldout = 0;    // of them
  Index too_long = 0;   // of the others
  Index left_out = 0;   // tokens that were too many
  Index unlearned = 0;  // examples, or pieces of one that was split, without a target; not in what follows
  // Of an epoch.
  Index pieces = 0;
  Index tokens = 0;
  Index targets = 0;
  Index rows = 0;
  double used_share = 0;  // of positions
};

/// What a run has read of a source before a step.
struct ExampleProgress {
  Index rows = 0;
  Index pieces = 0;
  Index tokens = 0;
  Index targets = 0;
  double epochs = 0;
};

class ExampleBatches {
 public:
  /// The files must outlive it. Throws ShapeError as BatchSampler does; ConfigError, naming each file, for
  /// sources of which nothing can be learned, weights that are none or that not all have, and a held-out part
  /// without an example.
  ExampleBatches(const std::vector<ExampleSource>& sources, const ExampleBatchesSettings& settings);

  /// As BatchSampler::train: rank r has the r-th stretch of the global batch. One thread at a time, as all
  /// that follows: rows of a mixture are drawn in blocks, and kept.
  Batch train(Index step, Index micro_batch, Index rank) const;
  StepTokens tokens_of(Index step) const;
  /// `count` rows of held-out examples of all sources together, dealt as by BatchSampler::heldout; the same
  /// ones for every seed.
  std::vector<Batch> heldout(Index count, Index per_batch, Index rank) const;

  Index sources() const { return std::ssize(sources_); }
  const ExampleCounts& counts(Index source) const { return sources_[at(source)].counts; }
  /// Before step number `step`.
  ExampleProgress progress(Index source, Index step) const;
  /// The fewest steps in which each source is read `epochs` times: all of its examples, or more. Without
  /// weights all come to their end together; with weights the others are read more often than the one that
  /// comes to its end last. At least 1.
  Index steps_of(double epochs) const;
  /// That the tables of all sources hold.
  Index table_bytes() const;
  /// That pages of the files take at most: of larger ones they are given back again and again.
  Index mapped_bytes() const;

 private:
  struct Source {
    const ExampleFile* file;
    PackedRows train;
    PackedRows heldout;
    ExampleCounts counts;
    Index rows_before = 0;  // of the sources before it, in an epoch
  };
  struct Row {
    const Source* source;
    std::vector<Piece> pieces;
  };

  Source make_source(const ExampleFile& file) const;
  /// Where a row comes from; without weights, rows of a source do not come in their order.
  SourceRow place_of(Index number) const;
  Row row(Index number) const;
  Index rows_before(Index number, Index source) const;
  void give_back_pages(Index mapped) const;
  template <typename RowOf>
  Batch batch_of(Index begin, Index end, RowOf row_of) const;

  ExampleBatchesSettings settings_;
  std::optional<Mixture> mixture_;  // by weights; none: rows of all sources are dealt as those of one
  std::vector<Source> sources_;
  Index all_rows_ = 0;              // of an epoch of all sources
  mutable Index mapped_ = 0;        // bytes at most, since pages were given back
  std::vector<SourceRow> heldout_;  // of all sources, in the order in which they are read
};

}  // namespace moeloom
