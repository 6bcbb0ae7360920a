#include "ask/answers.hpp"

#include "model/generate.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "ask/text_recording.hpp"
#include "words/text_stream.hpp"

namespace moeloom {
namespace {

JsonValue::Array as_json(const std::vector<ChatMessage>& messages) {
  JsonValue::Array all;
  for (const auto& [role, content] : messages)
    all.push_back({JsonValue::Object{{"role", {role}}, {"content", {content}}}});
  return all;
}

GenerationSettings settings_of(const Continuation& how) {
  return {.tokens = how.settings.tokens,
          .sampling = how.settings.sampling,
          .end_tokens = how.end_tokens,
          .resumes = how.resumes};
}

TextStream stream_of(const AnswerSettings& settings, const ModelText& text) {
  std::vector<std::string> stops = settings.stop;
  std::erase(stops, std::string());
  return TextStream(text, std::move(stops));
}

/// "12 And so on": its tokens, and the text that follows this rank's own prompt.
std::string own_text(const std::vector<std::int32_t>& prompt, const GenerationSettings& settings,
                     const Continuation& how, const ModelText& text, LoadedModel& model) {
  TextStream stream = stream_of(how.settings, text);
  const auto all = generate(model.to_decode(), model.mesh(), prompt, settings, [&](std::int32_t token) {
    stream.add(token);
    return !stream.stopped();
  });
  stream.finish();
  return std::to_string(all.size() - prompt.size()) + " " + stream.text();
}

Answer answer_of(const std::string& prompt, const std::string& told) {
  const std::size_t space = told.find(' ');
  return {.prompt = prompt, .text = told.substr(space + 1), .tokens = std::stoll(told.substr(0, space))};
}

}  // namespace

std::tm today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return day;
}

Conversation conversation_of(const std::vector<ChatMessage>& messages) {
  Conversation conversation;
  conversation.messages = as_json(messages);
  return conversation;
}

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

void check_room(const std::string& prompt, Index ids, Index tokens, Index positions, Violations& violations) {
  if (tokens > positions - ids)
    violations.add("a prompt of " + std::to_string(ids) + " and tokens = " + std::to_string(tokens) +
                   " make more positions than max_position_embeddings = " + std::to_string(positions));
  violations.unless(ids > 0, "the prompt \"" + prompt + "\" has no token");
}

void continue_ids(std::vector<std::int32_t> ids, const Continuation& how, LoadedModel& model,
                  const RunHost& host, const std::function<bool(std::int32_t)>& on_token) {
  Decoder& decoder = model.to_decode();
  const AnswerSettings& settings = how.settings;
  GenerationSettings generation = settings_of(how);
  if (model.speaks())
    generation.tokens = std::min(settings.tokens, decoder.config().max_position_embeddings - std::ssize(ids));
  std::optional<TextRecording> recording;
  agree(model.mesh().world(), [&] {
    if (model.speaks() && !settings.record_routing.empty())
      recording.emplace(settings.record_routing, decoder, std::ssize(ids) + settings.tokens - 1,
                        settings.sampling.seed);
  });
  tell_begin(host, model.mesh().world());
  const std::vector<std::int32_t> prompt = ids;
  generate(decoder, model.mesh(), prompt, generation, [&](std::int32_t token) {
    if (recording) recording->add(ids);
    ids.push_back(token);
    return on_token(token);
  });
  agree(model.mesh().world(), [&] {
    if (recording) recording->write();
  });
}

std::string continue_text(const std::vector<std::int32_t>& prompt, const Continuation& how,
                          const ModelText& text, LoadedModel& model, const RunHost& host,
                          const ShowText& show) {
  TextStream stream = stream_of(how.settings, text);
  const auto tell = [&](const std::string& part) {
    if (show && model.speaks()) show(part);
  };
  continue_ids(prompt, how, model, host, [&](std::int32_t token) {
    tell(stream.add(token));
    return !stream.stopped();
  });
  if (model.speaks()) tell(stream.finish());
  return stream.text();
}

void continue_all(const std::vector<std::string>& prompts, const std::vector<std::vector<std::int32_t>>& ids,
                  const Continuation& how, const ModelText& text, LoadedModel& model,
                  const ShowAnswer& show) {
  const Communicator& world = model.mesh().world();
  const std::size_t ranks = at(world.size()), rank = at(world.rank());
  for (std::size_t first = 0; first < prompts.size(); first += ranks) {
    const bool has_one = first + rank < prompts.size();
    GenerationSettings settings = settings_of(how);
    settings.sampling.seed += first + rank;  // two equal prompts are two texts
    const std::string mine =
        own_text(has_one ? ids[first + rank] : std::vector<std::int32_t>(), settings, how, text, model);
    const std::vector<std::string> of_ranks = world.all_gather_text(mine);
    for (std::size_t i = 0; i < ranks && first + i < prompts.size(); ++i)
      if (model.speaks() && show) show(answer_of(prompts[first + i], of_ranks[i]));
  }
}

}  // namespace moeloom
