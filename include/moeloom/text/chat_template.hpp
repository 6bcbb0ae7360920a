// Chat templates: conversations as a model's text, by the Jinja of Hugging Face's tokenizers.
//
// The interpreter is a sandbox: a template reads what it is given and nothing else, no file, environment or
// clock, in bounded steps, depth and memory. No collective.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/io/json_value.hpp"
#include "moeloom/text/utf8.hpp"

#include <ctime>
#include <memory>
#include <string>
#include <vector>

namespace moeloom {

/// What is wrong with a template, or what it refuses; what() is "<name>:<line>: <message>".
class TemplateError : public ConfigError {
 public:
  TemplateError(const std::string& name, int line, const std::string& message, bool raised);
  int line() const { return line_; }
  /// The message alone: the template's own words, if it raised it.
  const std::string& message() const { return message_; }
  /// Whether the template refused the conversation itself, by raise_exception.
  bool raised() const { return raised_; }

 private:
  int line_;
  std::string message_;
  bool raised_;
};

/// What a template may use up before it is stopped by a TemplateError.
struct RenderLimits {
  std::size_t steps = 10'000'000;
  std::size_t made_bytes = std::size_t{512} << 20;  // in all values together, also those that are gone
  std::size_t output_bytes = std::size_t{64} << 20;
  int depth = 1500;  // of calls and nested parts
};

/// What a template sees, as apply_chat_template's arguments.
struct ChatRequest {
  JsonValue messages;                  // an array of objects with role and content
  JsonValue tools = {};                // null: none
  JsonValue documents = {};            // null: none
  bool add_generation_prompt = false;  // the text ends where the assistant begins to speak
  JsonValue::Object variables = {};    // special tokens and the template's own switches
  std::tm now = {};                    // the time that strftime_now shows; the caller's to fill in
  RenderLimits limits = {};
};

/// A conversation as text.
struct RenderedChat {
  std::string text;
  std::vector<ByteRange> assistant;  // what stood between {% generation %} and {% endgeneration %}
  bool marks_assistant = false;      // whether the template has that tag
};

/// A template that was parsed once; copies share what was parsed.
class ChatTemplate {
 public:
  /// `name` stands in messages for the file. Throws TemplateError: more than 1 MiB, no UTF-8, a syntax that
  /// is wrong or not implemented.
  static ChatTemplate parse(std::string source, std::string name);

  /// Byte for byte what transformers' apply_chat_template gives. Thread safe. Throws TemplateError.
  RenderedChat render(const ChatRequest& request) const;

  /// Whether the template has {% generation %}.
  bool marks_assistant() const;
  /// Whether it writes the texts of a content that is a list of parts, {"type": "text", "text"}: others write
  /// nothing for it, or the list as Python prints it.
  bool takes_parts() const;
  const std::string& source() const { return source_; }
  const std::string& name() const { return name_; }

  /// The library's own.
  struct Parsed;

 private:
  ChatTemplate(std::string source, std::string name);
  std::string source_;
  std::string name_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace moeloom
