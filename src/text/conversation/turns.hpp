// Where a conversation's turns stand in its text, for templates that do not say so.
#pragma once

#include "text/learned.hpp"

namespace moeloom {

ChatRequest request_of(const Conversation& conversation, const LearnOptions& options);

/// Throws ConfigError before work begins that grows with the square of a conversation and would take long.
void require_little_work(std::size_t turns, std::size_t messages, std::size_t bytes,
                         const std::string& template_name);

class TurnFinder {
 public:
  /// Needs all three while it is used. `whole` is the conversation as the template renders it.
  TurnFinder(const Conversation& conversation, const ChatTemplate& chat_template, const LearnOptions& options,
             const std::string& whole);

  /// Behind the first messages and the prompt that asks for the next.
  std::optional<std::size_t> end_of_prompt(std::size_t messages) { return begin_of(messages); }
  /// What message i, which an assistant says, is in the text; none where it cannot be told.
  std::optional<ByteRange> turn(std::size_t i);

 private:
  std::optional<std::string> rendered(std::size_t messages, bool add_generation_prompt);
  std::optional<std::size_t> begin_of(std::size_t i);
  std::optional<ByteRange> turn_at(std::size_t begin, std::size_t i, std::string_view with_turn) const;
  std::optional<ByteRange> turn_by_answer(std::size_t i, const std::optional<std::string>& with_turn);
  std::optional<ByteRange> turn_by_call(std::size_t i, std::size_t name,
                                        const std::optional<std::string>& with_turn);
  const std::vector<std::optional<ByteRange>>& answers();

  const Conversation& conversation_;
  const ChatTemplate& chat_template_;
  ChatRequest request_;
  const std::string& whole_;
  std::vector<std::optional<ByteRange>> answers_;  // of each message, once they are asked for
};

}  // namespace moeloom
