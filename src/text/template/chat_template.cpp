#include "moeloom/text/chat_template.hpp"

#include "lexer.hpp"
#include "renderer.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kMostSource = std::size_t{1} << 20;

std::string placed(const std::string& name, int line, const std::string& message) {
  return name + ":" + std::to_string(line) + ": " + message;
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Program program;
};

TemplateError::TemplateError(const std::string& name, int line, const std::string& message, bool raised)
    : ConfigError({placed(name, line, message)}), line_(line), message_(message), raised_(raised) {}

ChatTemplate::ChatTemplate(std::string source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {}

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
  ChatTemplate result(std::move(source), std::move(name));
  if (result.source_.size() > kMostSource)
    throw TemplateError(result.name_, 1, "a template of more than 1 MiB", false);
  if (valid_utf8(result.source_) != result.source_)
    throw TemplateError(result.name_, 1, "the template is not UTF-8", false);
  try {
    result.parsed_ = std::make_shared<const Parsed>(Parsed{jinja::parse_program(result.source_)});
  } catch (const jinja::SyntaxError& error) {
    throw TemplateError(result.name_, error.line, error.text, false);
  }
  return result;
}

bool ChatTemplate::marks_assistant() const {
  return parsed_->program.marks_assistant;
}

bool ChatTemplate::takes_parts() const {
  constexpr const char* kWord = "WORDOFAPART";
  ChatRequest request;
  request.messages = parse_json_value(
      std::string(R"([{"role": "user", "content": [{"type": "text", "text": ")") + kWord + R"("}]}])",
      "part");
  try {
    const std::string text = render(request).text;
    return text.find(kWord) != std::string::npos &&
           text.find(std::string("'") + kWord) == std::string::npos &&
           text.find(std::string("\"") + kWord) == std::string::npos;
  } catch (const TemplateError&) {
    return false;
  }
}

RenderedChat ChatTemplate::render(const ChatRequest& request) const {
  jinja::Renderer renderer(parsed_->program, request);
  try {
    return renderer.render();
  } catch (const jinja::Failure& failure) {
    throw TemplateError(name_, renderer.line(), failure.what(), failure.raised());
  }
}

}  // namespace moeloom
