#include "train/example_batches.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <string>
#include <utility>

#include "shuffled.hpp"

namespace moeloom {
namespace {

/// Data alone decide what is held out, so that runs of two seeds are judged by the same examples.
constexpr std::uint64_t kHeldoutSeed = 0;

/// Of all files together. A read maps the pages around it too, 16 by Linux's default, of the ids, of what is
/// learned and of the table of both.
constexpr Index kMostMapped = Index{64} << 20;
constexpr Index kMappedByPiece = Index{3} * 16 * 4096;
constexpr Index kMappedByToken = sizeof(std::int32_t) + 1;

/// None: no source has a weight.
std::optional<Mixture> mixture_of(const std::vector<ExampleSource>& sources, std::uint64_t seed) {
  std::vector<double> weights;
  for (const ExampleSource& source : sources)
    if (source.weight) weights.push_back(*source.weight);
  if (weights.empty() && !sources.empty()) return std::nullopt;
  if (weights.size() != sources.size())
    throw ConfigError(
        {"of " + std::to_string(sources.size()) + " sources " + std::to_string(weights.size()) +
         " have a weight; give one to each, or to none: then each is read in proportion to what "
         "it holds"});
  return Mixture(weights, seed);
}

/// Of each example; which of them, depends on their number alone.
std::vector<bool> choose_heldout(Index examples, double fraction) {
  std::vector<bool> chosen(at(examples));
  if (fraction == 0 || examples < 2) return chosen;
  const auto count = std::max<Index>(static_cast<Index>(static_cast<double>(examples) * fraction), 1);
  const std::vector<Index> order = shuffled(examples, kHeldoutSeed, "heldout");
  for (Index i = 0; i < count; ++i) chosen[at(order[at(i)])] = true;
  return chosen;
}

/// Of at most a row each and with something to learn.
std::vector<Piece> learnable_pieces(const ExampleFile& file, std::span<const Piece> whole,
                                    const ExampleBatchesSettings& settings, ExampleCounts& counts) {
  FittedPieces fitted = fit_to_length(whole, settings.batch.length, settings.too_long);
  for (Piece& piece : fitted.pieces) {
    if (Index{piece.length} == file.length(piece.example)) continue;
    const auto learned = file.example(piece.example).learned.subspan(piece.begin, piece.length);
    piece.targets = static_cast<std::uint32_t>(count_targets(learned));
  }
  const auto unlearned = std::erase_if(fitted.pieces, [](const Piece& piece) { return piece.targets == 0; });
  counts.too_long = fitted.too_long;
  counts.left_out = fitted.left_out;
  counts.unlearned = static_cast<Index>(unlearned);
  return std::move(fitted.pieces);
}

StepTokens tokens_in(std::span<const Piece> pieces) {
  StepTokens sum;
  for (const Piece& piece : pieces) {
    sum.tokens += piece.length;
    sum.targets += piece.targets;
  }
  return sum;
}

void append(const ExampleFile& file, const Piece& piece, Batch& batch) {
  const ExampleView example = file.example(piece.example);
  const auto ids = example.ids.subspan(piece.begin, piece.length);
  const auto learned = example.learned.subspan(piece.begin, piece.length);
  batch.input_ids.insert(batch.input_ids.end(), ids.begin(), ids.end());
  for (std::size_t next = 1; next < ids.size(); ++next)
    batch.targets.push_back(learned[next] != 0 ? static_cast<std::int32_t>(ids[next]) : kIgnored);
  batch.targets.push_back(kIgnored);
  batch.segment_offsets.push_back(std::ssize(batch.input_ids));
}

void pad(Batch& batch) {
  batch.is_real.resize(batch.input_ids.size(), 1);
  const Index tokens = batch.tokens();
  require(std::ssize(batch.input_ids) <= tokens, "the examples of a row must fit into a sequence");
  if (std::ssize(batch.input_ids) == tokens) return;
  batch.input_ids.resize(at(tokens), 0);
  batch.targets.resize(at(tokens), kIgnored);
  batch.is_real.resize(at(tokens), 0);
  batch.segment_offsets.push_back(tokens);
}

}  // namespace

std::vector<Piece> pieces_of(const ExampleFile& file) {
  require(file.examples() <= Index{std::numeric_limits<std::uint32_t>::max()},
          "a file of examples has fewer than 2^32");
  std::vector<Piece> pieces;
  for (Index i = 0; i < file.examples(); ++i)
    pieces.push_back({static_cast<std::uint32_t>(i), 0, static_cast<std::uint32_t>(file.length(i)),
                      static_cast<std::uint32_t>(file.targets(i))});
  return pieces;
}

void append_row(const ExampleFile& file, std::span<const Piece> row, Batch& batch) {
  if (batch.segment_offsets.empty()) batch.segment_offsets.push_back(0);
  ++batch.sequences;
  for (const Piece& piece : row) append(file, piece, batch);
  pad(batch);
}

ExampleBatches::ExampleBatches(const std::vector<ExampleSource>& sources,
                               const ExampleBatchesSettings& settings)
    : settings_(settings), mixture_(mixture_of(sources, settings.seed)) {
  check_shape(settings.batch, settings.world);
  require(settings.heldout >= 0 && settings.heldout < 1, "the held-out part is a fraction below 1");
  Violations violations;
  for (const ExampleSource& source : sources) {
    sources_.push_back(make_source(*source.file));
    const ExampleCounts& counts = sources_.back().counts;
    if (counts.rows == 0)
      violations.add(source.file->path().string() + ": none of its " +
                         std::to_string(counts.examples - counts.heldout) +
                         " examples to train on has a learned token behind its first in a row of " +
                         std::to_string(settings.batch.length) +
                         " positions; give a longer sequence length or other data",
                     Cause::kData);
    sources_.back().rows_before = std::exchange(all_rows_, all_rows_ + counts.rows);
    const auto s = std::ssize(sources_) - 1;
    for (Index r = 0; r < sources_.back().heldout.rows(); ++r) heldout_.push_back({s, r});
  }
  violations.unless(settings.heldout == 0 || !heldout_.empty(),
                    "the held-out part holds no example with a learned token; give a larger held-out "
                    "fraction, 0, or more data");
  violations.throw_if_any();
  std::vector<SourceRow> mixed;
  for (const Index i : shuffled(std::ssize(heldout_), kHeldoutSeed, "heldout/rows"))
    mixed.push_back(heldout_[at(i)]);
  heldout_ = std::move(mixed);
  for (const Source& source : sources_) source.file->forget();  // all of its table was read
}

ExampleBatches::Source ExampleBatches::make_source(const ExampleFile& file) const {
  Source source{.file = &file, .train = {}, .heldout = {}, .counts = {.examples = file.examples()}};
  const Index length = settings_.batch.length;
  const std::vector<bool> is_heldout = choose_heldout(file.examples(), settings_.heldout);
  std::vector<Piece> train, heldout;
  for (const Piece& piece : pieces_of(file)) (is_heldout[piece.example] ? heldout : train).push_back(piece);
  ExampleCounts unused;
  source.heldout = PackedRows(learnable_pieces(file, heldout, settings_, unused), length, kHeldoutSeed);
  source.counts.heldout = std::ssize(heldout);
  train = learnable_pieces(file, train, settings_, source.counts);
  const StepTokens all = tokens_in(train);
  source.train = PackedRows(train, length, settings_.seed);
  source.counts.pieces = std::ssize(train);
  source.counts.tokens = all.tokens;
  source.counts.targets = all.targets;
  source.counts.rows = source.train.rows();
  source.counts.used_share = source.train.used_share();
  return source;
}

SourceRow ExampleBatches::place_of(Index number) const {
  if (mixture_) return mixture_->row(number);
  const Index epoch = number / all_rows_;
  const Dealing dealt(all_rows_, dealing_key(settings_.seed, "sources", epoch));
  const Index place = dealt(number % all_rows_);
  const auto behind = std::ranges::upper_bound(sources_, place, {}, &Source::rows_before);
  const Index source = std::distance(sources_.begin(), behind) - 1;
  return {source, epoch * sources_[at(source)].counts.rows + place - sources_[at(source)].rows_before};
}

ExampleBatches::Row ExampleBatches::row(Index number) const {
  const SourceRow place = place_of(number);
  const Source& source = sources_[at(place.source)];
  const Index rows = source.counts.rows;
  return {&source, source.train.row(place.row % rows, place.row / rows)};
}

Index ExampleBatches::rows_before(Index number, Index source) const {
  if (mixture_) return mixture_->rows_before(number, source);
  const Index epoch = number / all_rows_;
  Index rows = epoch * sources_[at(source)].counts.rows;
  for (Index n = epoch * all_rows_; n < number; ++n) rows += place_of(n).source == source ? 1 : 0;
  return rows;
}

/// row_of(number): of [begin, end).
template <typename RowOf>
Batch ExampleBatches::batch_of(Index begin, Index end, RowOf row_of) const {
  Batch batch;
  batch.sequence_length = settings_.batch.length;
  for (Index number = begin; number < end; ++number) {
    const Row row = row_of(number);
    append_row(*row.source->file, row.pieces, batch);
    give_back_pages(std::ssize(row.pieces) * kMappedByPiece + batch.sequence_length * kMappedByToken);
  }
  return batch;
}

Batch ExampleBatches::train(Index step, Index micro_batch, Index rank) const {
  const Index first = settings_.batch.first_sequence(micro_batch, rank, settings_.world);
  const Index begin = step * settings_.batch.sequences + first;
  Batch batch = batch_of(begin, begin + settings_.batch.sequences_per_micro_batch(settings_.world),
                         [&](Index number) { return row(number); });
  batch.first_token = first * batch.sequence_length;
  return batch;
}

StepTokens ExampleBatches::tokens_of(Index step) const {
  StepTokens sum;
  for (Index g = 0; g < settings_.batch.sequences; ++g) {
    const StepTokens mine = tokens_in(row(step * settings_.batch.sequences + g).pieces);
    sum.tokens += mine.tokens;
    sum.targets += mine.targets;
  }
  return sum;
}

std::vector<Batch> ExampleBatches::heldout(Index count, Index per_batch, Index rank) const {
  std::vector<Batch> batches;
  const Index held = std::ssize(heldout_);
  for (const auto& [begin, end] : deal_heldout(held, count, per_batch, settings_.world, rank))
    batches.push_back(batch_of(begin, end, [&](Index number) -> Row {
      const Source& source = sources_[at(heldout_[at(number)].source)];
      return {&source, source.heldout.row(heldout_[at(number)].row)};
    }));
  return batches;
}

/// Of the epoch under way row by row: what each holds is known when it is looked up.
ExampleProgress ExampleBatches::progress(Index source, Index step) const {
  const Source& of = sources_[at(source)];
  const Index end = step * settings_.batch.sequences;
  const Index rows = rows_before(end, source);
  const Index whole = mixture_ ? rows / of.counts.rows : end / all_rows_;
  ExampleProgress progress{.rows = rows,
                           .pieces = whole * of.counts.pieces,
                           .tokens = whole * of.counts.tokens,
                           .targets = whole * of.counts.targets,
                           .epochs = static_cast<double>(rows) / static_cast<double>(of.counts.rows)};
  const auto add = [&](Index row_of_epoch) {
    const std::vector<Piece> pieces = of.train.row(row_of_epoch, whole);
    const StepTokens sum = tokens_in(pieces);
    progress.pieces += std::ssize(pieces);
    progress.tokens += sum.tokens;
    progress.targets += sum.targets;
  };
  if (mixture_) {
    for (Index r = 0; r < rows % of.counts.rows; ++r) add(r);
    return progress;
  }
  for (Index number = whole * all_rows_; number < end; ++number)
    if (const SourceRow place = place_of(number); place.source == source) add(place.row % of.counts.rows);
  return progress;
}

Index ExampleBatches::steps_of(double epochs) const {
  const auto steps_of_rows = [&](double rows) {
    return std::max<Index>(
        static_cast<Index>(std::ceil(rows / static_cast<double>(settings_.batch.sequences))), 1);
  };
  if (!mixture_) return steps_of_rows(epochs * static_cast<double>(all_rows_));
  Index steps = 1;
  for (Index s = 0; s < sources(); ++s) {
    const double wanted = epochs * static_cast<double>(sources_[at(s)].counts.rows);
    const auto is_read = [&](Index n) {
      return static_cast<double>(rows_before(n * settings_.batch.sequences, s)) >= wanted;
    };
    // By the share that the source has of every whole block, and then by what the blocks hold.
    const double share =
        static_cast<double>(mixture_->rows_per_source()[at(s)]) / static_cast<double>(Mixture::kRowsOfBlock);
    const Index least = steps_of_rows(wanted / share - static_cast<double>(Mixture::kRowsOfBlock));
    const Index most = steps_of_rows(wanted / share + static_cast<double>(Mixture::kRowsOfBlock));
    const auto candidates = std::views::iota(std::max(steps, least), std::max(steps, most) + 1);
    steps = *std::ranges::partition_point(candidates, [&](Index n) { return !is_read(n); });
  }
  return steps;
}

Index ExampleBatches::table_bytes() const {
  Index bytes = 0;
  for (const Source& source : sources_) bytes += source.train.bytes() + source.heldout.bytes();
  return bytes + std::ssize(heldout_) * Index{sizeof(SourceRow)};
}

Index ExampleBatches::mapped_bytes() const {
  Index bytes = 0;
  for (const Source& source : sources_) bytes += source.file->bytes();
  return std::min(bytes, kMostMapped);
}

void ExampleBatches::give_back_pages(Index mapped) const {
  mapped_ += mapped;
  if (mapped_ < kMostMapped) return;
  for (const Source& source : sources_)
    if (source.file->bytes() > kMostMapped / sources()) source.file->forget();
  mapped_ = 0;
}

}  // namespace moeloom
