#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "train/example_batches.hpp"
#include "train/non_finite.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <sstream>

#include "ask/score.hpp"
#include "cli/options.hpp"
#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "fields/option_values.hpp"
#include "open/run_data.hpp"

namespace moeloom {
namespace {

constexpr Index kUsualLength = 2048;

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
    double nats[] = {mine.nats, mine.text_nats};
    std::int64_t counts[] = {mine.tokens, mine.bytes};
    world.all_sum(std::span<double>(nats));
    world.all_sum(std::span<std::int64_t>(counts));
    return {.nats = nats[0], .tokens = counts[0], .text_nats = nats[1], .bytes = counts[1]};
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
        const ScoredExample scored = score_example(first_of(file.example(piece.example), piece),
                                                   std::span(losses).subspan(place, piece.length), text_);
        score += scored.score;
        lines.push_back({.example = piece.example, .logprobs = scored.logprobs});
        place += piece.length;
      }
      place = (place + at(length_) - 1) / at(length_) * at(length_);
    }
  }

  /// Of an example what fits into a sequence.
  static ExampleView first_of(const ExampleView& example, const Piece& piece) {
    return {example.ids.first(piece.length), example.learned.first(piece.length)};
  }

  const EvalOptions& options_;
  const ModelText* text_;
  LoadedModel& model_;
  const Index length_;
};

void print(const std::string& name, const Score& score) {
  std::printf("%-32s %10lld %12.4f %12.4f", name.c_str(), static_cast<long long>(score.tokens),
              score.nats_per_token(), std::exp(score.nats_per_token()));
  if (score.bytes > 0)
    std::printf(" %12.4f\n", score.bits_per_byte());
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

/// All ranks' lines, each source's in the order of its examples; rank 0 writes them. Every call is collective
/// and does nothing without a file.
class LinesFile {
 public:
  /// Throws AgreedError where it cannot be opened.
  LinesFile(const std::filesystem::path& path, const Communicator& world) : path_(path), world_(world) {
    agree(world_, [&] {
      if (path_.empty() || world_.rank() != 0) return;
      file_.open(path_);
      check();
    });
  }

  /// Throws AgreedError where it cannot be written.
  void add(const std::string& mine) {
    if (path_.empty()) return;
    const std::vector<std::string> of_ranks = world_.all_gather_text(mine);
    agree(world_, [&] {
      if (world_.rank() != 0) return;
      for (const auto& [example, line] : by_example(of_ranks)) file_ << line << '\n';
      file_.flush();
      check();
    });
  }

 private:
  static std::map<Index, std::string> by_example(const std::vector<std::string>& of_ranks) {
    std::map<Index, std::string> found;
    for (const std::string& text : of_ranks) {
      std::istringstream lines(text);
      Index example = 0;
      for (std::string line; lines >> example && lines.get() && std::getline(lines, line);)
        found[example] = line;
    }
    return found;
  }
  void check() const {
    if (!file_) throw_io_error("cannot write " + path_.string(), errno);
  }

  const std::filesystem::path& path_;
  const Communicator& world_;
  std::ofstream file_;
};

/// Where tokenized data are kept if nothing is said: beside others of this user.
std::filesystem::path cache_of(const EvalOptions& options, const AskedModel& asked) {
  if (!options.cache.empty()) return options.cache;
  const std::filesystem::path& cache = asked.flags.cache_folder;
  return (cache.empty() ? std::filesystem::current_path() : cache) / "moeloom" / "data";
}

struct AskedEval {
  EvalOptions options;
  AskedModel model;
  std::optional<ModelText> text;  // none where only ids are read

  /// Tokens of a sequence.
  Index length() const {
    const Index positions = model.config.max_position_embeddings;
    return options.sequence_length > 0 ? options.sequence_length : std::min(positions, kUsualLength);
  }
};

/// None where only ids are read. As train reads it, one text is bytes to a model without a tokenizer,
/// whatever its vocabulary.
std::optional<ModelText> words_of(const EvalOptions& options, const AskedModel& model) {
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
  return ModelText::of(model.start.folder, model.config, "give ids: --data-format u16 or u32",
                       options.ask.ignored_keys);
}

void check_eval(AskedEval& request, Violations& violations) {
  const auto& [options, model, text] = request;
  request.text = words_of(options, model);
  const Index positions = model.config.max_position_embeddings;
  violations.unless(options.sequence_length <= positions,
                    "seq-len = " + std::to_string(options.sequence_length) +
                        " is more than max_position_embeddings = " + std::to_string(positions));
}

/// The data as examples, every one of which the model can be asked about. Collective.
RunData open_data(const AskedEval& request, const Communicator& world) {
  const EvalOptions& options = request.options;
  TrainOptions reading;
  reading.data = {.sources = options.sources,
                  .format = options.format,
                  .rows = options.rows,
                  .skip_bad = options.skip_bad,
                  .cache = cache_of(options, request.model)};
  reading.batch.length = request.length();
  reading.kernels.threads = options.ask.threads;
  reading.model.ignored_keys = options.ask.ignored_keys;
  RunData data;
  ProgramLog log({.rank = world.rank(), .level = request.model.flags.log_level});
  open_examples(reading, request.model.flags, request.text.value_or(ModelText()), world, log.host(), data);
  agree(world, [&] {
    for (std::size_t i = 0; i < data.examples.size(); ++i) {
      const std::string name = options.sources[i].file.string();
      const Index largest = data.examples[i]->largest_id(), ids = request.model.config.vocab_size;
      if (largest >= ids)
        throw ConfigError({name + " holds token id " + std::to_string(largest) +
                           ", but vocab_size = " + std::to_string(ids)});
      if (data.examples[i]->targets() == 0)
        throw ConfigError({name + " has no learned token that could be predicted"});
    }
  });
  return data;
}

/// Of a loss that is no number. Collective; throws AgreedError.
[[noreturn]] void refuse_model(const std::string& source, const AskedEval& request,
                               const LoadedModel& model) {
  const std::string broken = first_non_finite_weight(model.store(), model.mesh().world());
  throw AgreedError(
      "the loss of " + source + " is not finite: " +
          (broken.empty()
               ? "the weights of " + request.model.start.folder.string() + " are, but too large"
               : "in " + request.model.start.folder.string() + " the first weight that is not is " + broken),
      Cause::kData);
}

/// A table of all sources on rank 0, and a line an example where asked. Collective.
void evaluate(const AskedEval& request, const RunData& data, LoadedModel& model) {
  const EvalOptions& options = request.options;
  const Communicator& ranks = model.mesh().world();
  LinesFile logprobs(options.logprobs, ranks);
  if (model.speaks())
    std::printf("%-32s %10s %12s %12s %12s\n", "source", "tokens", "nats/token", "perplexity", "bits/byte");
  ProgramLog log({.rank = ranks.rank(), .level = request.model.flags.log_level});
  const RunHost host = log.host();
  for (const Prepared& prepared : data.prepared) say(prepared, Log(host));
  if (model.speaks() && request.text && request.text->is_bytes() && request.model.config.vocab_size != 256)
    log.warn(Event().with("tokenizer", "none").with("reason", "bytes are read as ids 0 to 255"));
  Evaluation evaluation(options, request.text ? &*request.text : nullptr, model, request.length());
  Score all;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const std::string name = options.sources[i].file.filename().string();
    std::vector<Line> lines;
    const Score score = evaluation.score(*data.examples[i], lines);
    if (!std::isfinite(score.nats)) refuse_model(name, request, model);
    if (model.speaks()) print(name, score);
    all += score;
    logprobs.add(text_of(name, lines));
  }
  if (model.speaks() && data.examples.size() > 1) print("all", all);
}

}  // namespace

int eval_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const AskedEval request = agree_on_request<AskedEval>(argc, argv, world, parse_eval_options, check_eval);
  const RunData data = open_data(request, world);
  LoadedModel model = loaded_model(request.model, request.options.ask, std::move(world), false);
  evaluate(request, data, model);
  return 0;
}

}  // namespace moeloom
