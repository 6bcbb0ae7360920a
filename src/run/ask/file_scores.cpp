#include "ask/file_scores.hpp"

#include "moeloom/base/errors.hpp"
#include "train/example_batches.hpp"
#include "train/non_finite.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moeloom {
namespace {

constexpr Index kUsualLength = 2048;

/// Where tokenized data are kept if nothing is said: beside others of this user.
std::filesystem::path cache_of(const ScoreOptions& options, const RunFlags& flags) {
  if (!options.cache.empty()) return options.cache;
  const std::filesystem::path& cache = flags.cache_folder;
  return (cache.empty() ? std::filesystem::current_path() : cache) / "moeloom" / "data";
}

/// Of an example what fits into a sequence.
ExampleView first_of(const ExampleView& example, const Piece& piece) {
  return {example.ids.first(piece.length), example.learned.first(piece.length)};
}

/// Every rank's values, one behind the other, as many as each has. Collective.
template <typename Value>
std::vector<Value> all_of(const std::vector<Value>& mine, const Communicator& world) {
  const auto bytes = std::as_bytes(std::span(mine));
  std::string all;
  for (const std::string& of_rank :
       world.all_gather_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
    all += of_rank;
  std::vector<Value> values(all.size() / sizeof(Value));
  if (!all.empty()) std::memcpy(values.data(), all.data(), all.size());
  return values;
}

/// Those of all ranks, on every rank, by example. Collective.
std::vector<ExampleScore> gathered(const std::vector<ExampleScore>& mine, const Communicator& world) {
  std::vector<Index> shapes;  // number and tokens of each
  std::vector<double> values;
  for (const ExampleScore& one : mine) {
    shapes.insert(shapes.end(), {one.example, std::ssize(one.logprobs)});
    values.insert(values.end(), one.logprobs.begin(), one.logprobs.end());
  }
  const std::vector<Index> all_shapes = all_of(shapes, world);
  const std::vector<double> all_values = all_of(values, world);
  std::vector<ExampleScore> all;
  auto value = all_values.begin();
  for (std::size_t i = 0; i < all_shapes.size(); i += 2) {
    const auto end = value + all_shapes[i + 1];
    all.push_back({.example = all_shapes[i], .logprobs = {value, end}});
    value = end;
  }
  std::ranges::sort(all, {}, &ExampleScore::example);
  return all;
}

/// As train reads it, one text is bytes to a model without a tokenizer, whatever its vocabulary.
std::optional<ModelText> words_for(const ScoreOptions& options, const AskedModel& model,
                                   const std::set<std::string>& ignored_keys) {
  const bool reads_text = std::ranges::any_of(options.sources, [&](const DataSource& source) {
    return holds_records(source.file, options.format) ||
           token_format(source.file, options.format) == TokenFormat::kText;
  });
  const bool has_words = holds_tokenizer(model.start.folder);
  if (!reads_text && !has_words) return std::nullopt;
  DataOptions data;
  data.sources = options.sources;
  data.format = options.format;
  if (!has_words && trains_on_stream(data, nullptr)) return ModelText();
  return ModelText::of(model.start.folder, model.config, "give ids: `data-format` u16 or u32", ignored_keys);
}

Index length_of(const ScoreOptions& options, const ModelConfig& config) {
  const Index positions = config.max_position_embeddings;
  if (options.sequence_length > positions)
    throw ConfigError({"seq-len = " + std::to_string(options.sequence_length) +
                       " is more than max_position_embeddings = " + std::to_string(positions)});
  return options.sequence_length > 0 ? options.sequence_length : std::min(positions, kUsualLength);
}

}  // namespace

FileScoring::FileScoring(const ScoreOptions& options, const AskedModel& asked, const AskOptions& ask,
                         const Communicator& world, const RunHost& host)
    : options_(options), asked_(asked), world_(world), host_(host) {
  agree(world, [&] {
    Violations violations;
    violations.attempt([&] { text_ = words_for(options, asked, ask.ignored_keys); });
    violations.attempt([&] { length_ = length_of(options, asked.config); });
    violations.throw_if_any();
  });
  data_ = open_data(ask);
}

RunData FileScoring::open_data(const AskOptions& ask) const {
  TrainOptions reading;
  reading.data = {.sources = options_.sources,
                  .format = options_.format,
                  .rows = options_.rows,
                  .skip_bad = options_.skip_bad,
                  .cache = cache_of(options_, asked_.flags)};
  reading.batch.length = length_;
  reading.kernels.threads = ask.threads;
  reading.model.ignored_keys = ask.ignored_keys;
  RunData data;
  open_examples(reading, asked_.flags, text_.value_or(ModelText()), world_, host_, data);
  agree(world_, [&] {
    for (std::size_t i = 0; i < data.examples.size(); ++i) {
      const std::string name = options_.sources[i].file.string();
      const Index largest = data.examples[i]->largest_id(), ids = asked_.config.vocab_size;
      if (largest >= ids)
        throw ConfigError({name + " holds token id " + std::to_string(largest) +
                           ", but vocab_size = " + std::to_string(ids)});
      if (data.examples[i]->targets() == 0)
        throw ConfigError({name + " has no learned token that could be predicted"});
    }
  });
  return data;
}

Score FileScoring::score_rows(const ExampleFile& file, const PackedRows& rows, const std::vector<Index>& mine,
                              LoadedModel& model, std::vector<ExampleScore>& examples) const {
  const ModelText* const text = text_ ? &*text_ : nullptr;
  Batch batch{.sequences = 0, .sequence_length = length_, .input_ids = {}, .targets = {}};
  for (const Index row : mine) append_row(file, rows.row(row), batch);
  const std::vector<double> losses = model.to_score().token_losses(batch);
  Score score;
  std::size_t place = 0;
  for (const Index row : mine) {
    for (const Piece& piece : rows.row(row)) {
      const ScoredExample scored = score_example(first_of(file.example(piece.example), piece),
                                                 std::span(losses).subspan(place, piece.length), text);
      score += scored.score;
      examples.push_back({.example = piece.example, .logprobs = scored.logprobs});
      place += piece.length;
    }
    place = (place + at(length_) - 1) / at(length_) * at(length_);
  }
  return score;
}

Score FileScoring::score_file(const ExampleFile& file, LoadedModel& model,
                              std::vector<ExampleScore>& examples) const {
  const std::vector<Piece> pieces = fit_to_length(pieces_of(file), length_, TooLong::kCut).pieces;
  const PackedRows rows(pieces, length_, 0);
  Score mine;
  for (Index first = 0; first < rows.rows(); first += options_.batch * world_.size()) {
    std::vector<Index> of_rank;
    for (Index i = 0; i < options_.batch; ++i)
      if (const Index row = first + i * world_.size() + world_.rank(); row < rows.rows())
        of_rank.push_back(row);
    mine += score_rows(file, rows, of_rank, model, examples);
  }
  double nats[] = {mine.nats, mine.text_nats};
  std::int64_t counts[] = {mine.tokens, mine.bytes};
  world_.all_sum(std::span<double>(nats));
  world_.all_sum(std::span<std::int64_t>(counts));
  return {.nats = nats[0], .tokens = counts[0], .text_nats = nats[1], .bytes = counts[1]};
}

std::vector<double> losses_of(const Example& example, LoadedModel& model) {
  const auto mine = static_cast<double>(example.ids.size());
  const auto length = static_cast<Index>(model.mesh().world().all_max(mine));
  Batch batch{.sequences = model.speaks() ? 1 : 0, .sequence_length = length, .input_ids = {}, .targets = {}};
  for (std::size_t i = 0; i < example.ids.size(); ++i) {
    const bool counts = i + 1 < example.ids.size() && example.learned[i + 1] != 0;
    batch.input_ids.push_back(static_cast<std::int32_t>(example.ids[i]));
    batch.targets.push_back(counts ? static_cast<std::int32_t>(example.ids[i + 1]) : kIgnored);
  }
  return model.to_score().token_losses(batch);
}

void FileScoring::tell_data(bool speaks) const {
  const Log log(host_);
  for (const Prepared& prepared : data_.prepared) say(prepared, log);
  if (speaks && text_ && text_->is_bytes() && asked_.config.vocab_size != 256)
    log.warn(Event().with("tokenizer", "none").with("reason", "bytes are read as ids 0 to 255"));
}

void FileScoring::refuse(const std::string& source, const LoadedModel& model) const {
  const std::string broken = first_non_finite_weight(model.store(), world_);
  const std::string folder = asked_.start.folder.string();
  throw AgreedError("the loss of " + source + " is not finite: " +
                        (broken.empty() ? "the weights of " + folder + " are, but too large"
                                        : "in " + folder + " the first weight that is not is " + broken),
                    Cause::kData);
}

void FileScoring::score(LoadedModel& model, const ShowScore& show) const {
  tell_begin(host_, world_);
  tell_data(model.speaks());
  for (std::size_t i = 0; i < data_.examples.size(); ++i) {
    const DataSource& source = options_.sources[i];
    std::vector<ExampleScore> examples;
    const Score score = score_file(*data_.examples[i], model, examples);
    if (!std::isfinite(score.nats)) refuse(source.file.filename().string(), model);
    examples = options_.by_example ? gathered(examples, world_) : std::vector<ExampleScore>();
    agree(world_, [&] {
      if (model.speaks() && show) show(source, score, examples);
    });
  }
}

}  // namespace moeloom
