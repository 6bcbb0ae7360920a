// Prompts of a conversation, and the text that follows a prompt.
#pragma once

#include "moeloom/run/asking.hpp"

#include "ask/loaded_model.hpp"
#include "words/model_text.hpp"

namespace moeloom {

/// The ids of a conversation by the model's chat template, with what begins an answer. Throws ConfigError
/// where it does not fit the template or leaves no position for an answer.
std::vector<std::int32_t> chat_prompt(const ModelText& text, const std::vector<ChatMessage>& messages,
                                      const TemplateSwitches& switches, Index positions);

/// What follows rank 0's `prompt`, there. goes_on: what the model has read of it is not read again, and sums
/// may have another order. Collective over the world.
std::string answer_to(const std::vector<std::int32_t>& prompt, const ModelText& text, LoadedModel& model,
                      const AnswerSettings& settings, const ShowText& show, bool goes_on);

}  // namespace moeloom
