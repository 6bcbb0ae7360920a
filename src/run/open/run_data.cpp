#include "open/run_data.hpp"

#include "comm/control_groups.hpp"
#include "io/data_text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/run/flags.hpp"

#include <cmath>
#include <sstream>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

std::vector<ExampleSource> sources_of(const RunData& data, const DataOptions& options) {
  std::vector<ExampleSource> sources;
  for (std::size_t i = 0; i < data.examples.size(); ++i)
    sources.push_back({data.examples[i].get(), options.sources[i].weight});
  return sources;
}

std::string percent(double share) {
  return value_text(std::round(share * 1000) / 10) + " %";
}

/// Those that the job may run on this rank's node: --threads is of a rank, and while one prepares data the
/// others wait. 0: nobody said. Collective.
Index threads_of_node(const TrainOptions& options, const RunFlags& flags, const Communicator& world) {
  const Index ranks = world.split_by_node().size();
  const auto processors = Index{usable_processors()};
  const Index each = options.kernels.threads > 0 ? options.kernels.threads : flags.threads.value_or(0);
  return std::min(each * ranks, std::max(each, processors));
}

}  // namespace

bool trains_on_stream(const DataOptions& data, const ModelText* text) {
  if (data.sources.size() != 1) return false;
  const fs::path& file = data.sources.front().file;
  if (holds_records(file, data.format) || (!data.format && is_gzip(file))) return false;
  return token_format(file, data.format) != TokenFormat::kText || text == nullptr || text->is_bytes();
}

void open_examples(const TrainOptions& options, const RunFlags& flags, const ModelText& text,
                   const Communicator& world, const RunHost& host, RunData& data) {
  const DataOptions& asked = options.data;
  const Index threads = threads_of_node(options, flags, world);
  const fs::path cache = asked.cache.empty() ? options.run.folder / "data" : asked.cache;
  const auto say_wait = [&](const std::string& file, const std::string& who) {
    Log(host).info(Event().with("waits_for", file).with("made_by", who));
  };
  std::string made;
  agree(world, [&] {
    if (world.rank() != 0) return;
    for (const DataSource& source : asked.sources) {
      const RecordReader reader(text, asked.rows, options.model.ignored_keys, day_of(source.file));
      data.prepared.push_back(prepare_examples(source, reader,
                                               {.cache = cache,
                                                .format = asked.format,
                                                .sequence_length = options.batch.length,
                                                .skip_bad = asked.skip_bad,
                                                .threads = threads,
                                                .on_wait = say_wait},
                                               host.board));
      made += data.prepared.back().examples.string() + '\n';
    }
  });
  std::istringstream paths(world.all_gather_text(made).front());
  agree(world, [&] {
    for (std::string path; std::getline(paths, path);)
      data.examples.push_back(std::make_unique<ExampleFile>(path));
    for (const DataSource& source : asked.sources)
      data.bytes += static_cast<Index>(fs::file_size(source.file));
  });
}

RunBatches::RunBatches(const RunData& data, const TrainOptions& options, Index world) {
  if (data.tokens)
    sampler_.emplace(*data.tokens, split_tokens(data.tokens->size(), options.data.heldout), options.batch,
                     world, options.run.seed);
  else
    examples_.emplace(sources_of(data, options.data),
                      ExampleBatchesSettings{.batch = options.batch,
                                             .world = world,
                                             .seed = options.run.seed,
                                             .too_long = options.data.too_long,
                                             .heldout = options.data.heldout});
}

BatchSource RunBatches::source() const {
  return sampler_ ? BatchSource(*sampler_) : BatchSource(*examples_);
}

std::vector<Batch> RunBatches::heldout(Index count, Index per_batch, Index rank) const {
  return sampler_ ? sampler_->heldout(count, per_batch, rank) : examples_->heldout(count, per_batch, rank);
}

std::vector<std::pair<std::string, std::string>> facts_of(const RunData& data, const DataOptions& options,
                                                          const std::string& unit) {
  if (data.tokens)
    return {{"data", options.sources.front().file.filename().string() + ", " +
                         std::to_string(data.tokens->size()) + " " + unit + "s"}};
  std::vector<std::pair<std::string, std::string>> facts;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const ExampleFile& file = *data.examples[i];
    std::string text = options.sources[i].file.filename().string() + ", " + std::to_string(file.examples()) +
                       " examples, " + std::to_string(file.tokens()) + " tokens, " +
                       percent(static_cast<double>(file.targets()) / static_cast<double>(file.tokens())) +
                       " learned";
    if (const auto& weight = options.sources[i].weight) text += ", weight " + value_text(*weight);
    facts.emplace_back("data", text);
  }
  return facts;
}

void say(const Prepared& prepared, const Log& log) {
  Event event;
  event.with(prepared.found ? "found_tokenized" : "tokenized", prepared.examples.string());
  if (!prepared.found)
    event.with("threads", prepared.threads)
        .with("seconds", prepared.seconds)
        .with("MB/s", static_cast<double>(prepared.bytes) / 1e6 / std::max(prepared.seconds, 1e-9));
  if (prepared.skipped > 0) event.with("skipped_lines", prepared.skipped);
  if (prepared.unplaced > 0) event.with("turns_not_found", prepared.unplaced);
  log.info(event);
  if (!prepared.unread.empty()) {
    std::string names;
    for (const std::string& name : prepared.unread) names += (names.empty() ? "" : ", ") + name;
    log.info(Event().with("not_read", names));
  }
  for (const std::string& why : prepared.why_skipped) log.warn(Event().with("skipped", why));
  if (prepared.unplaced > 0)
    log.warn(Event()
                 .with("turns_not_found", prepared.unplaced)
                 .with("reason",
                       "the template does not repeat what the assistant says there, so it is not learned; "
                       "moeloom inspect `data` shows what is"));
}

std::vector<Event> progress_events(const RunData& data, const DataOptions& options,
                                   const ExampleBatches& batches, Index step) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const auto source = static_cast<Index>(i);
    const ExampleProgress done = batches.progress(source, step);
    const ExampleCounts& counts = batches.counts(source);
    events.push_back(Event()
                         .with("source", options.sources[i].file.filename().string())
                         .with("epochs", done.epochs)
                         .with("tokens", done.tokens)
                         .with("learned", done.targets)
                         .with("heldout", counts.heldout)
                         .with("too_long", counts.too_long)
                         .with("tokens_left_out", counts.left_out)
                         .with("nothing_to_learn", counts.unlearned)
                         .with("positions_used", counts.used_share));
  }
  return events;
}

}  // namespace moeloom
