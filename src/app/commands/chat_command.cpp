#include "moeloom/base/errors.hpp"

#include <iostream>
#include <unistd.h>

#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

/// A conversation that grows turn by turn; rank 0 has it, the others lend their experts.
class Chat {
 public:
  Chat(const ChatOptions& options, Asking& model) : options_(options), model_(model) {
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  /// Shows the answer as it comes. Collective; throws AgreedError where a turn does not fit the template or
  /// the model: the conversation stays as it was before.
  void turn(const std::string& said) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", said});
    AnswerSettings settings = options_.answer;
    settings.sampling.seed += messages.size();
    const std::string answer = model_.chat(
        messages, settings, [](const std::string& part) { std::cout << printable(part) << std::flush; },
        options_.switches);
    if (speaks()) std::cout << '\n' << std::flush;
    messages.push_back({"assistant", answer});
    messages_ = std::move(messages);
  }

 private:
  const ChatOptions& options_;
  Asking& model_;
  std::vector<ChatMessage> messages_;
};

/// The next line that a person writes; none at the end. Rank 0's counts.
std::optional<std::string> next_turn() {
  std::string told;
  if (speaks()) {
    if (isatty(STDIN_FILENO) != 0) std::cout << "> " << std::flush;
    if (std::string line; std::getline(std::cin, line)) told = "\n" + line;
  }
  const std::string said = Communicator::world().all_gather_text(told).front();
  if (said.empty()) return std::nullopt;
  return said.substr(1);
}

}  // namespace

int chat_command(int argc, char** argv) {
  Violations violations;
  const auto options = agree_on_options(argc, argv, parse_chat_options, violations);
  ProgramLog log{LogSettings()};
  Asking model = asked_model(options.ask, violations, log);
  if (!model.chats())
    throw AgreedError(model.folder().string() +
                      " has no chat template; moeloom generate goes on with a text");
  model.load();
  Chat chat(options, model);
  if (!options.message.empty()) {
    chat.turn(options.message);
    return 0;
  }
  while (const std::optional<std::string> said = next_turn()) {
    if (said->empty()) continue;
    try {
      chat.turn(*said);
    } catch (const AgreedError& error) {  // the conversation goes on without this turn
      if (speaks()) std::cerr << "[error] " << error.what() << '\n';
    }
  }
  return 0;
}

}  // namespace moeloom
