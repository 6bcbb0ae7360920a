#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/train/example_batches.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numbers>
#include <numeric>
#include <sstream>

#include "cli/option_values.hpp"
#include "commands/commands.hpp"
#include "run/start/run_data.hpp"
#include "text/loaded_model.hpp"

namespace moeloom {
namespace {

constexpr Index kUsualLength = 2048;

/// How well the learned tokens of some examples are predicted.
struct Score {
  double nats = 0;
  Index tokens = 0;
  Index bytes = 0;  // of their text
};

/// One example's, with the log p of each learned token.
struct Line {
  Index example = 0;
  std::vector<double> logprobs;
};

class Evaluation {
 public:
  Evaluation(const EvalOptions& options, const ModelText* text, LoadedModel& model, Index length)
      : options_(options), text_(text), model_(model), length_(length) {}

  /// Of all ranks' parts of a file. Collective; `lines` gets this rank's examples.
  Score score(const ExampleFile& file, std::vector<Line>& lines) {
    const std::vector<Piece> pieces = fit_to_length(pieces_of(file), length_, TooLong::kCut).pieces;
    const PackedRows rows(pieces, length_, 0);
    const Communicator& world = model_.mesh().world();
    Score mine;
    for (Index first = 0; first < rows.rows(); first += options_.batch * world.size()) {
      std::vector<Index> of_rank;
      for (Index i = 0; i < options_.batch; ++i)
        if (const Index row = first + i * world.size() + world.rank(); row < rows.rows())
          of_rank.push_back(row);
      add(file, rows, of_rank, mine, lines);
    }
    double nats = mine.nats;
    std::int64_t counts[] = {mine.tokens, mine.bytes};
    world.all_sum(std::span(&nats, 1));
    world.all_sum(std::span<std::int64_t>(counts));
    return {nats, counts[0], counts[1]};
  }

 private:
  void add(const ExampleFile& file, const PackedRows& rows, const std::vector<Index>& of_rank, Score& score,
           std::vector<Line>& lines) {
    Batch batch{.sequences = 0, .sequence_length = length_, .input_ids = {}, .targets = {}};
    for (const Index row : of_rank) append_row(file, rows.row(row), batch);
    const std::vector<double> losses = model_.decoder().token_losses(batch);
    std::size_t place = 0;
    for (const Index row : of_rank) {
      for (const Piece& piece : rows.row(row)) {
        lines.push_back(take(file.example(piece.example), piece, std::span(losses).subspan(place), score));
        place += piece.length;
      }
      place = (place + at(length_) - 1) / at(length_) * at(length_);
    }
  }

  Line take(const ExampleView& example, const Piece& piece, std::span<const double> losses,
            Score& score) const {
    Line line{.example = piece.example, .logprobs = {}};
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i + 1 < piece.length; ++i) {
      if (example.learned[i + 1] == 0) continue;
      line.logprobs.push_back(-losses[i]);
      ids.push_back(static_cast<std::int32_t>(example.ids[i + 1]));
    }
    score.nats -= std::accumulate(line.logprobs.begin(), line.logprobs.end(), 0.0);
    score.tokens += std::ssize(ids);
    if (text_ != nullptr) score.bytes += std::ssize(text_->decode(ids));
    return line;
  }

  const EvalOptions& options_;
  const ModelText* text_;
  LoadedModel& model_;
  const Index length_;
};

void print(const std::string& name, const Score& score) {
  const double nats = score.nats / static_cast<double>(score.tokens);
  std::printf("%-32s %10lld %12.4f %12.4f", name.c_str(), static_cast<long long>(score.tokens), nats,
              std::exp(nats));
  if (score.bytes > 0)
    std::printf(" %12.4f\n", score.nats / std::numbers::ln2 / static_cast<double>(score.bytes));
  else
    std::printf(" %12s\n", "-");
}

std::string text_of(const std::string& source, const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) {
    Document document;
    document.set("source", source);
    document.set("example", line.example);
    document.set("tokens", static_cast<Index>(line.logprobs.size()));
    document.set("logprob", std::accumulate(line.logprobs.begin(), line.logprobs.end(), 0.0));
    document.set("logprobs", line.logprobs);
    text += std::to_string(line.example) + ' ' + document.dump(-1) + '\n';
  }
  return text;
}

/// All ranks' lines in the order of the examples, on rank 0.
void write_lines(const std::string& mine, const Communicator& world, std::ofstream& file) {
  std::map<Index, std::string> by_example;
  for (const std::string& text : world.all_gather_text(mine)) {
    std::istringstream lines(text);
    Index example = 0;
    for (std::string line; lines >> example && lines.get() && std::getline(lines, line);)
      by_example[example] = line;
  }
  for (const auto& [example, line] : by_example) file << line << '\n';
  file.flush();
}

/// Where tokenized data are kept if nothing is said: beside others of this user.
std::filesystem::path cache_of(const EvalOptions& options, const AskedModel& asked) {
  if (!options.cache.empty()) return options.cache;
  const std::filesystem::path& cache = asked.flags.cache_folder;
  return (cache.empty() ? std::filesystem::current_path() : cache) / "moeloom" / "data";
}

}  // namespace

int eval_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  EvalOptions options;
  Violations violations;
  std::optional<ModelText> text;
  agree(world, [&] { options = parse_eval_options(argc, argv, violations); });
  const AskedModel asked = agree_on_model(
      options.ask, said_by(argc, argv), world, violations, [&](const AskedModel& model, Violations& more) {
        const auto& format = options.format;
        const bool reads_text = std::ranges::any_of(options.sources, [&](const DataSource& source) {
          return holds_records(source.file, format) ||
                 format.value_or(guess_token_format(source.file)) == TokenFormat::kText;
        });
        if (reads_text || holds_tokenizer(model.start.folder))
          text = ModelText::of(model.start.folder, model.config);
        const Index positions = model.config.max_position_embeddings;
        more.unless(options.sequence_length <= positions,
                    "seq-len = " + std::to_string(options.sequence_length) +
                        " is more than max_position_embeddings = " + std::to_string(positions));
      });
  const Index positions = asked.config.max_position_embeddings;
  const Index length =
      options.sequence_length > 0 ? options.sequence_length : std::min(positions, kUsualLength);
  TrainOptions reading;
  reading.data = {.sources = options.sources,
                  .format = options.format,
                  .sequence_length = length,
                  .learn = options.learn,
                  .skip_bad = options.skip_bad,
                  .cache = cache_of(options, asked)};
  RunData data;
  open_examples(reading, text ? *text : ModelText(), world, nullptr, data);
  agree(world, [&] {
    for (std::size_t i = 0; i < data.examples.size(); ++i) {
      const Index largest = data.examples[i]->largest_id();
      if (largest >= asked.config.vocab_size)
        throw ConfigError({options.sources[i].file.string() + " holds token id " + std::to_string(largest) +
                           ", but vocab_size = " + std::to_string(asked.config.vocab_size)});
      if (data.examples[i]->targets() == 0)
        throw ConfigError(
            {options.sources[i].file.string() + " has no learned token that could be predicted"});
    }
  });
  LoadedModel model(asked, options.ask, std::move(world), false);
  const Communicator& ranks = model.mesh().world();
  std::ofstream logprobs;
  agree(ranks, [&] {
    if (!model.speaks() || options.logprobs.empty()) return;
    logprobs.open(options.logprobs);
    if (!logprobs) throw_io_error("cannot write " + options.logprobs.string(), errno);
  });
  if (model.speaks())
    std::printf("%-32s %10s %12s %12s %12s\n", "source", "tokens", "nats/token", "perplexity", "bits/byte");
  Log log({.rank = ranks.rank(), .level = asked.flags.log_level});
  for (const Prepared& prepared : data.prepared) say(prepared, log);
  Evaluation evaluation(options, text ? &*text : nullptr, model, length);
  Score all;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const std::string name = options.sources[i].file.filename().string();
    std::vector<Line> lines;
    const Score score = evaluation.score(*data.examples[i], lines);
    if (model.speaks()) print(name, score);
    all = {all.nats + score.nats, all.tokens + score.tokens, all.bytes + score.bytes};
    if (!options.logprobs.empty()) write_lines(text_of(name, lines), ranks, logprobs);
    agree(ranks, [&] {
      if (model.speaks() && !options.logprobs.empty() && !logprobs)
        throw_io_error("cannot write " + options.logprobs.string(), errno);
    });
  }
  if (model.speaks() && data.examples.size() > 1) print("all", all);
  return 0;
}

}  // namespace moeloom
