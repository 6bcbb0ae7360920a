#include "ask/answers.hpp"

#include "model/generate.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "words/text_stream.hpp"

namespace moeloom {
namespace {

std::tm today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return day;
}

JsonValue::Array as_json(const std::vector<ChatMessage>& messages) {
  JsonValue::Array all;
  for (const auto& [role, content] : messages)
    all.push_back({JsonValue::Object{{"role", {role}}, {"content", {content}}}});
  return all;
}

}  // namespace

std::vector<std::int32_t> chat_prompt(const ModelText& text, const std::vector<ChatMessage>& messages,
                                      const TemplateSwitches& switches, Index positions) {
  if (text.tokenizer() == nullptr || !text.chat().has_template())
    throw ConfigError({text.folder().string() + " has no chat template"});
  JsonValue::Object variables = text.chat().variables(*text.tokenizer());
  variables.insert(variables.end(), switches.variables.begin(), switches.variables.end());
  const std::string prompt = text.chat()
                                 .chat_template(false)
                                 .render({.messages = {as_json(messages)},
                                          .add_generation_prompt = true,
                                          .variables = std::move(variables),
                                          .now = today()})
                                 .text;
  std::vector<std::int32_t> ids = text.encode(prompt, false);
  if (std::ssize(ids) >= positions)
    throw ConfigError({"the conversation has " + std::to_string(ids.size()) + " tokens, and the model " +
                       std::to_string(positions) + " positions: begin a new one"});
  return ids;
}

std::string answer_to(const std::vector<std::int32_t>& prompt, const ModelText& text, LoadedModel& model,
                      const AnswerSettings& settings, const ShowText& show, bool goes_on) {
  GenerationSettings generation{.tokens = settings.tokens,
                                .sampling = settings.sampling,
                                .end_tokens = text.end_tokens(),
                                .resumes = goes_on};
  const Index positions = model.decoder().config().max_position_embeddings;
  if (model.speaks()) generation.tokens = std::min(generation.tokens, positions - std::ssize(prompt));
  std::vector<std::string> stops = settings.stop;
  std::erase(stops, std::string());
  TextStream stream(text, std::move(stops));
  const auto tell = [&](const std::string& part) {
    if (show && model.speaks()) show(part);
  };
  generate(model.decoder(), model.mesh(), prompt, generation, [&](std::int32_t token) {
    tell(stream.add(token));
    return !stream.stopped();
  });
  if (model.speaks()) tell(stream.finish());
  return stream.text();
}

}  // namespace moeloom
