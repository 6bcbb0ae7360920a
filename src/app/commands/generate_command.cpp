#include "io/text_file.hpp"
#include "model/generate.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "train/routing/routing_recorder.hpp"

#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/options.hpp"
#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"
#include "open/run_setup.hpp"
#include "summary/run_report.hpp"
#include "words/text_stream.hpp"

namespace moeloom {
namespace {

struct Request {
  GenerateOptions options;
  AskedModel model;
  std::optional<ModelText> text;  // none where only ids are asked for
  std::vector<std::string> prompts;
  std::vector<std::int32_t> end_tokens;

  std::vector<std::int32_t> ids_of(const std::string& prompt) const;
};

/// As a text begins in training: with what the tokenizer puts before it, if it does.
std::vector<std::int32_t> Request::ids_of(const std::string& prompt) const {
  if (text) return text->encode(prompt, true);
  std::vector<std::int32_t> ids;
  for (const Index id : options.prompt_ids) ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::istringstream text(read_text_file(file));
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) throw ConfigError({file.string() + " holds no prompt; write one a line"});
  return lines;
}

void check_ids(const Request& request, Index vocabulary, Violations& violations) {
  for (const Index id : request.options.prompt_ids)
    if (id < 0 || id >= vocabulary)
      violations.add("--prompt-ids holds " + std::to_string(id) + ", but ids go from 0 to " +
                     std::to_string(vocabulary - 1) + " (vocab_size = " + std::to_string(vocabulary) + ")");
}

void check(Request& request, Violations& violations) {
  const GenerateOptions& options = request.options;
  const AskedModel& asked = request.model;
  if (options.prompt_ids.empty())
    request.text = ModelText::of(asked.start.folder, asked.config, "ask in ids: --prompt-ids 1,2,3",
                                 options.ask.ignored_keys);
  if (!options.ignore_end)
    request.end_tokens = request.text ? request.text->end_tokens() : end_tokens_in(asked.start.folder);
  check_ids(request, asked.config.vocab_size, violations);
  violations.add(routing_violations({.record = options.record_routing}, asked.config));
  request.prompts = options.prompts.empty() ? std::vector{options.prompt} : lines_of(options.prompts);
  const Index positions = asked.config.max_position_embeddings;
  for (const std::string& prompt : request.prompts) {
    const auto given = static_cast<Index>(request.ids_of(prompt).size());
    if (options.tokens > positions - given)
      violations.add("a prompt of " + std::to_string(given) +
                     " and tokens = " + std::to_string(options.tokens) +
                     " make more positions than max_position_embeddings = " + std::to_string(positions));
    violations.unless(given > 0, "the prompt \"" + prompt + "\" has no token");
  }
}

Request agree_on_generation(int argc, char** argv, const Communicator& world) {
  Request request = agree_on_request<Request>(argc, argv, world, parse_generate_options, check);
  require_same_on_all_ranks(joined(request.prompts, "\n"), world);
  return request;
}

GenerationSettings settings_of(const Request& request, std::size_t prompt) {
  GenerationSettings settings{.tokens = request.options.tokens, .sampling = request.options.sampling};
  settings.sampling.seed += prompt;  // two equal prompts are two texts
  settings.end_tokens = request.end_tokens;
  return settings;
}

/// Of the prompt and what is added, on the rank that has them. The last token was not routed.
class TextRecording {
 public:
  TextRecording(const Request& request, const Decoder& decoder, Index positions)
      : decoder_(decoder),
        heading_(
            routing_heading_of(request.model.config, positions, positions, request.options.sampling.seed)),
        path_(request.options.record_routing),
        file_(std::in_place, path_, heading_, 0, 1) {}

  /// The last forward had the tokens of `text` that are not known yet, or all of them anew.
  void add(const std::vector<std::int32_t>& text) {
    const auto tokens = at(decoder_.layers()[at(heading_.layers.front())].moe()->routing().tokens());
    if (tokens == text.size()) mine_.clear();
    mine_.add(decoder_, std::span(text).last(tokens));
  }
  void write() {
    const Index positions = std::ssize(mine_.input_ids());
    if (positions != heading_.tokens) {  // the text ended before
      heading_.tokens = heading_.sequence_length = positions;
      file_.emplace(path_, heading_, 0, 1);
    }
    file_->begin_step(0);
    for (const RecordedRouting& layer : mine_.layers()) file_->add_layer(layer);
    file_->end_step(text_hash(mine_.input_ids()));
  }

 private:
  const Decoder& decoder_;
  RoutingHeading heading_;
  std::filesystem::path path_;
  std::optional<RoutingFileWriter> file_;
  RoutingCollector mine_;
};

/// The one prompt of rank 0 and what follows it, shown as it comes.
void speak(const Request& request, LoadedModel& model) {
  std::vector<std::int32_t> text;
  if (model.speaks()) text = request.ids_of(request.options.prompt);
  std::optional<TextRecording> recording;
  agree(model.mesh().world(), [&] {
    if (model.speaks() && !request.options.record_routing.empty())
      recording.emplace(request, model.decoder(),
                        static_cast<Index>(text.size()) + request.options.tokens - 1);
  });
  std::optional<TextStream> stream;
  if (request.text) stream.emplace(*request.text, request.options.stop);
  if (model.speaks())
    std::cout << (stream ? printable(request.options.prompt) : value_text(request.options.prompt_ids))
              << std::flush;
  const GenerationSettings settings = settings_of(request, 0);
  generate(model.decoder(), model.mesh(), text, settings, [&](std::int32_t token) {
    if (recording) recording->add(text);
    text.push_back(token);
    if (stream)
      std::cout << printable(stream->add(token)) << std::flush;
    else
      std::cout << ',' << token << std::flush;
    return !stream || !stream->stopped();
  });
  if (model.speaks()) std::cout << (stream ? printable(stream->finish()) : "") << '\n';
  agree(model.mesh().world(), [&] {
    if (recording) recording->write();
  });
}

/// Each rank has a text of its own; a line a prompt, in their order.
void answer_all(const Request& request, LoadedModel& model) {
  const Communicator& world = model.mesh().world();
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  for (std::size_t first = 0; first < request.prompts.size(); first += ranks) {
    const bool has_one = first + rank < request.prompts.size();
    const std::string prompt = has_one ? request.prompts[first + rank] : std::string();
    const std::vector<std::int32_t> ids = has_one ? request.ids_of(prompt) : std::vector<std::int32_t>{};
    TextStream stream(*request.text, request.options.stop);
    const auto text = generate(model.decoder(), model.mesh(), ids, settings_of(request, first + rank),
                               [&](std::int32_t token) {
                                 stream.add(token);
                                 return !stream.stopped();
                               });
    stream.finish();
    Document line;
    line.set("prompt", prompt);
    line.set("text", stream.text());
    line.set("tokens", static_cast<Index>(text.size() - ids.size()));
    for (const std::string& told : world.all_gather_text(has_one ? line.dump(-1) : std::string()))
      if (model.speaks() && !told.empty()) std::cout << told << '\n' << std::flush;
  }
}

}  // namespace

int generate_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const Request request = agree_on_generation(argc, argv, world);
  LoadedModel model = loaded_model(request.model, request.options.ask, std::move(world), true);
  if (request.options.prompts.empty())
    speak(request, model);
  else
    answer_all(request, model);
  return 0;
}

}  // namespace moeloom
