#include "moeloom/run/asking.hpp"

#include "moeloom/base/errors.hpp"

#include "ask/answers.hpp"
#include "ask/loaded_model.hpp"

namespace moeloom {
namespace {

AskedModel opened(const Communicator& world, const AskOptions& options, const RunHost& host) {
  Violations violations;
  violations.unless(!options.model.empty(), "model is needed: a run, a checkpoint or a folder");
  violations.unless_at_least(1, "ep", options.ep);
  std::string said =
      options.model.string() + "\n" + options.adapter.string() + "\n" + std::to_string(options.ep);
  for (const std::string& key : options.ignored_keys) said += "\n" + key;
  const auto nothing_more = [](const AskedModel&, Violations&) {};
  const auto flags = [&] { return host.flags ? host.flags() : RunFlags(); };
  return agree_on_model(options, said, flags, world, violations, nothing_more);
}

ModelText text_of(const AskedModel& asked, const AskOptions& options, const Communicator& world) {
  ModelText text;
  agree(world, [&] { text = ModelText::of(asked.start.folder, asked.config, {}, options.ignored_keys); });
  return text;
}

}  // namespace

struct Asking::Parts {
  RunHost host;
  AskedModel asked;
  ModelText text;
  LoadedModel model;

  Parts(Communicator world, const AskOptions& options, const RunHost& from)
      : host(from),
        asked(opened(world, options, host)),
        text(text_of(asked, options, world)),
        model(asked, options, std::move(world), true, host) {}

  /// make(): rank 0's prompt, of which it may throw what is wrong with it.
  template <typename Make>
  std::string answer(Make make, const AnswerSettings& settings, const ShowText& show, bool goes_on) {
    std::vector<std::int32_t> prompt;
    agree(model.mesh().world(), [&] {
      check(settings.sampling);
      if (model.speaks()) prompt = make();
    });
    return answer_to(prompt, text, model, settings, show, goes_on);
  }
};

Asking::Asking(Communicator world, const AskOptions& options, const RunHost& host)
    : parts_(std::make_unique<Parts>(std::move(world), options, host)) {}
Asking::Asking(Asking&&) noexcept = default;
Asking::~Asking() = default;

std::string Asking::generate(const std::string& prompt, const AnswerSettings& settings,
                             const ShowText& show) {
  const auto ids = [&] {
    std::vector<std::int32_t> of_prompt = parts_->text.encode(prompt, true);
    if (of_prompt.empty()) throw ConfigError({"the prompt has no token"});
    const Index positions = parts_->asked.config.max_position_embeddings;
    if (std::ssize(of_prompt) >= positions)
      throw ConfigError({"the prompt has " + std::to_string(of_prompt.size()) + " tokens, and the model " +
                         std::to_string(positions) + " positions"});
    return of_prompt;
  };
  return parts_->answer(ids, settings, show, false);
}

std::string Asking::chat(const std::vector<ChatMessage>& messages, const AnswerSettings& settings,
                         const ShowText& show, const TemplateSwitches& switches) {
  const auto ids = [&] {
    return chat_prompt(parts_->text, messages, switches, parts_->asked.config.max_position_embeddings);
  };
  return parts_->answer(ids, settings, show, true);
}

}  // namespace moeloom
