// Prompts, and the text that follows a prompt.
#pragma once

#include "moeloom/run/asking.hpp"
#include "text/conversation.hpp"

#include <ctime>

#include "ask/loaded_model.hpp"
#include "words/model_text.hpp"

namespace moeloom {

std::tm today();
Conversation conversation_of(const std::vector<ChatMessage>& messages);

/// The ids of a conversation by the model's chat template, with what begins an answer. Throws ConfigError
/// where it does not fit the template or leaves no position for an answer.
std::vector<std::int32_t> chat_prompt(const ModelText& text, const std::vector<ChatMessage>& messages,
                                      const TemplateSwitches& switches, Index positions);

/// Adds what can be said against a prompt of so many ids that so many tokens are to follow.
void check_room(const std::string& prompt, Index ids, Index tokens, Index positions, Violations& violations);

/// How rank 0's text, or each rank's own, goes on behind a prompt.
struct Continuation {
  AnswerSettings settings = {};
  std::vector<std::int32_t> end_tokens = {};
  /// What the model has read of a prompt is not read again, and sums may have another order.
  bool resumes = false;
};

/// Tells of each token of rank 0's text; it may return false, and the text ends. Collective over the world,
/// as all that follows; throws AgreedError.
void continue_ids(std::vector<std::int32_t> prompt, const Continuation& how, LoadedModel& model,
                  const RunHost& host, const std::function<bool(std::int32_t)>& on_token);
/// -> the text, on rank 0.
std::string continue_text(const std::vector<std::int32_t>& prompt, const Continuation& how,
                          const ModelText& text, LoadedModel& model, const RunHost& host,
                          const ShowText& show);
/// A text behind each of the prompts, which every rank has, with their `ids`; each rank has one at a time.
void continue_all(const std::vector<std::string>& prompts, const std::vector<std::vector<std::int32_t>>& ids,
                  const Continuation& how, const ModelText& text, LoadedModel& model, const ShowAnswer& show);

}  // namespace moeloom
