#include "moeloom/base/errors.hpp"

#include <iostream>
#include <unistd.h>

#include "ask/answers.hpp"
#include "cli/options.hpp"
#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "summary/run_report.hpp"

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

/// A conversation that grows turn by turn; rank 0 has it, the others lend their experts.
class Chat {
 public:
  Chat(const ChatOptions& options, const ModelText& text, LoadedModel& model)
      : options_(options), text_(text), model_(model) {
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  /// Shows the answer as it comes. Collective; throws AgreedError where a turn does not fit the template or
  /// the model.
  void turn(const std::string& said) {
    std::vector<std::int32_t> prompt;
    agree(model_.mesh().world(), [&] {
      if (!model_.speaks()) return;
      messages_.push_back({"user", said});
      try {
        prompt = chat_prompt(text_, messages_, options_.switches,
                             model_.decoder().config().max_position_embeddings);
      } catch (...) {
        messages_.pop_back();  // the conversation stays as it was before this turn
        throw;
      }
    });
    AnswerSettings settings{.tokens = options_.tokens, .sampling = options_.sampling, .stop = options_.stop};
    settings.sampling.seed += messages_.size();
    const std::string answer = answer_to(
        prompt, text_, model_, settings,
        [](const std::string& part) { std::cout << printable(part) << std::flush; }, true);
    if (!model_.speaks()) return;
    std::cout << '\n' << std::flush;
    messages_.push_back({"assistant", answer});
  }

 private:
  const ChatOptions& options_;
  const ModelText& text_;
  LoadedModel& model_;
  std::vector<ChatMessage> messages_;
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
