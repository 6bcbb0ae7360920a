#include "moeloom/base/errors.hpp"
#include "moeloom/model/generate.hpp"

#include <ctime>
#include <iostream>
#include <unistd.h>

#include "cli/options.hpp"
#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "report/run_report.hpp"
#include "text/text_stream.hpp"

namespace moeloom {
namespace {

struct AskedChat {
  ChatOptions options;
  AskedModel model;
  ModelText text;
};

void check_chat(AskedChat& request, Violations& violations) {
  const std::filesystem::path& folder = request.model.start.folder;
  request.text = ModelText::of(folder, request.model.config, "", request.options.ask.ignored_keys);
  violations.unless(request.text.tokenizer() != nullptr && request.text.chat().has_template(),
                    folder.string() + " has no chat template; moeloom generate goes on with a text");
}

JsonValue message_of(const std::string& role, const std::string& content) {
  return {JsonValue::Object{{"role", {role}}, {"content", {content}}}};
}

std::tm today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return day;
}

/// A conversation that grows turn by turn; rank 0 has it, the others lend their experts.
class Chat {
 public:
  Chat(const ChatOptions& options, const ModelText& text, LoadedModel& model)
      : options_(options), text_(text), model_(model), end_tokens_(text.end_tokens()) {
    if (!options.system.empty()) messages_.push_back(message_of("system", options.system));
  }

  /// Shows the answer as it comes. Collective; throws AgreedError where a turn does not fit the template or
  /// the model.
  void turn(const std::string& said) {
    std::vector<std::int32_t> prompt;
    agree(model_.mesh().world(), [&] {
      if (!model_.speaks()) return;
      messages_.push_back(message_of("user", said));
      try {
        prompt = prompt_ids();
      } catch (...) {
        messages_.pop_back();  // the conversation stays as it was before this turn
        throw;
      }
    });
    GenerationSettings settings{
        .tokens = options_.tokens, .sampling = options_.sampling, .end_tokens = end_tokens_, .resumes = true};
    settings.sampling.seed += messages_.size();
    if (model_.speaks()) settings.tokens = std::min(settings.tokens, positions() - std::ssize(prompt));
    TextStream stream(text_, options_.stop);
    generate(model_.decoder(), model_.mesh(), prompt, settings, [&](std::int32_t token) {
      std::cout << printable(stream.add(token)) << std::flush;
      return !stream.stopped();
    });
    if (!model_.speaks()) return;
    std::cout << printable(stream.finish()) << '\n' << std::flush;
    messages_.push_back(message_of("assistant", stream.text()));
  }

 private:
  Index positions() { return model_.decoder().config().max_position_embeddings; }

  std::vector<std::int32_t> prompt_ids() {
    JsonValue::Object variables = text_.chat().variables(*text_.tokenizer());
    variables.insert(variables.end(), options_.switches.variables.begin(), options_.switches.variables.end());
    const std::string prompt = text_.chat()
                                   .chat_template(false)
                                   .render({.messages = {messages_},
                                            .add_generation_prompt = true,
                                            .variables = std::move(variables),
                                            .now = today()})
                                   .text;
    std::vector<std::int32_t> ids = text_.encode(prompt, false);
    if (std::ssize(ids) >= positions())
      throw ConfigError({"the conversation has " + std::to_string(ids.size()) + " tokens, and the model " +
                         std::to_string(positions()) + " positions: begin a new one"});
    return ids;
  }

  const ChatOptions& options_;
  const ModelText& text_;
  LoadedModel& model_;
  const std::vector<std::int32_t> end_tokens_;
  JsonValue::Array messages_;
};

/// The next line that a person writes; none at the end. Rank 0's counts.
std::optional<std::string> next_turn(const Communicator& world, bool speaks) {
  std::string told;
  if (speaks) {
    if (isatty(STDIN_FILENO) != 0) std::cout << "> " << std::flush;
    if (std::string line; std::getline(std::cin, line)) told = "\n" + line;
  }
  const std::string said = world.all_gather_text(told).front();
  if (said.empty()) return std::nullopt;
  return said.substr(1);
}

}  // namespace

int chat_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const auto [options, asked, text] =
      agree_on_request<AskedChat>(argc, argv, world, parse_chat_options, check_chat);
  LoadedModel model = loaded_model(asked, options.ask, std::move(world), true);
  Chat chat(options, text, model);
  if (!options.message.empty()) {
    chat.turn(options.message);
    return 0;
  }
  while (const std::optional<std::string> said = next_turn(model.mesh().world(), model.speaks())) {
    if (said->empty()) continue;
    try {
      chat.turn(*said);
    } catch (const AgreedError& error) {  // the conversation goes on without this turn
      if (model.speaks()) std::cerr << "[error] " << error.what() << '\n';
    }
  }
  return 0;
}

}  // namespace moeloom
