#include "text/chat_model.hpp"

#include "io/text_file.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <algorithm>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using Templates = std::map<std::string, ChatTemplate>;

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

void add(Templates& templates, const std::string& name, std::string source, const fs::path& path) {
  templates.insert_or_assign(name, ChatTemplate::parse(std::move(source), path.string()));
}

Templates templates_in_files(const fs::path& folder) {
  Templates templates;
  if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file))
    add(templates, kDefault, read_text_file(file), file);
  const fs::path others = folder / "additional_chat_templates";
  if (!fs::is_directory(others)) return templates;
  for (const fs::directory_entry& entry : fs::directory_iterator(others))
    if (entry.path().extension() == ".jinja")
      add(templates, entry.path().stem().string(), read_text_file(entry.path()), entry.path());
  return templates;
}

[[noreturn]] void fail(const fs::path& file, const std::string& member, const std::string& expected,
                       const JsonValue* found) {
  throw ConfigError({file.string() + ": " + member + ": expected " + expected + ", found " +
                     (found == nullptr ? "nothing" : described(*found))});
}

Templates templates_in_config(const JsonValue& config, const fs::path& file) {
  Templates templates;
  const JsonValue* value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return templates;
  if (value->text() != nullptr) {
    add(templates, kDefault, *value->text(), file);
    return templates;
  }
  if (value->array() == nullptr) fail(file, "chat_template", "a text or a list of {name, template}", value);
  for (const JsonValue& each : *value->array()) {
    const JsonValue* name = each.find("name");
    const JsonValue* source = each.find("template");
    if (name == nullptr || name->text() == nullptr) fail(file, "chat_template.name", "a text", name);
    if (source == nullptr || source->text() == nullptr)
      fail(file, "chat_template.template", "a text", source);
    add(templates, *name->text(), *source->text(), file);
  }
  return templates;
}

/// The text of a token that is written as a text or as an object with its content.
const std::string* content_of(const JsonValue& token) {
  const JsonValue* content = token.object() == nullptr ? &token : token.find("content");
  return content == nullptr ? nullptr : content->text();
}

JsonValue text_value(const std::string& text) {
  JsonValue value;
  value.value = text;
  return value;
}

void set_token(JsonValue::Object& tokens, const std::string& name, const JsonValue& token,
               const fs::path& file) {
  if (token.is_null()) return;
  const std::string* content = content_of(token);
  if (content == nullptr) fail(file, name, "a text or an object with content", &token);
  const auto known = std::ranges::find(tokens, name, &JsonValue::Member::name);
  if (known == tokens.end())
    tokens.push_back({name, text_value(*content)});
  else
    known->value = text_value(*content);
}

void set_list(JsonValue::Object& tokens, const std::string& name, const JsonValue& list,
              const fs::path& file) {
  JsonValue::Array contents;
  for (const JsonValue& token : *list.array()) {
    const std::string* content = content_of(token);
    if (content == nullptr) fail(file, name, "texts or objects with content", &token);
    contents.push_back(text_value(*content));
  }
  if (contents.empty()) return;
  std::erase_if(tokens, [&](const JsonValue::Member& each) { return each.name == name; });
  tokens.push_back({name, {}});
  tokens.back().value.value = std::move(contents);
}

/// Tokens by their names, which end in _token, those of {name: token}, and the list without names.
void set_tokens(JsonValue::Object& tokens, const JsonValue& file_value, const fs::path& file) {
  if (file_value.object() == nullptr) return;
  for (const auto& [name, value] : *file_value.object()) {
    const bool named_token =
        name.ends_with("_token") && (value.text() != nullptr || value.object() != nullptr);
    const bool named_list = name == "extra_special_tokens" || name == "model_specific_special_tokens";
    if (named_token) set_token(tokens, name, value, file);
    if (named_list && value.object() != nullptr)
      for (const auto& [inner, token] : *value.object()) set_token(tokens, inner, token, file);
    if (name == "additional_special_tokens" && value.array() != nullptr) set_list(tokens, name, value, file);
  }
}

}  // namespace

ChatModel ChatModel::load(const fs::path& folder) {
  ChatModel model;
  model.origin_ = folder.string();
  model.templates_ = templates_in_files(folder);
  const bool from_files = model.has_template();
  bool has_decoder = false;  // then transformers does not read the other file
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file) || has_decoder) continue;
    const JsonValue config = parse_json_value(read_text_file(file), file.string());
    if (!from_files && !model.has_template()) model.templates_ = templates_in_config(config, file);
    set_tokens(model.special_tokens_, config, file);
    const JsonValue* decoder = config.find("added_tokens_decoder");
    has_decoder = decoder != nullptr && !decoder->is_null();
  }
  return model;
}

ChatModel ChatModel::of(ChatTemplate chat_template) {
  ChatModel model;
  model.origin_ = chat_template.name();
  model.templates_.emplace(kDefault, std::move(chat_template));
  return model;
}

const ChatTemplate& ChatModel::chat_template(bool with_tools) const {
  const auto tool_use = templates_.find(kToolUse);
  if (with_tools && tool_use != templates_.end()) return tool_use->second;
  const auto usual = templates_.find(kDefault);
  if (usual != templates_.end()) return usual->second;
  std::string names;
  for (const auto& [name, each] : templates_) names += (names.empty() ? "" : ", ") + name;
  throw ConfigError({origin_ +
                     ": expected a chat template in chat_template.jinja or tokenizer_config.json, found " +
                     (names.empty() ? "none" : "only those named " + names)});
}

std::string ChatModel::special_token(std::string_view name) const {
  for (const auto& [known, token] : special_tokens_)
    if (known == name && token.text() != nullptr) return *token.text();
  return "";
}

JsonValue::Object ChatModel::variables(const Tokenizer& tokenizer) const {
  JsonValue::Object variables;
  for (const auto& [name, token] : special_tokens_) {
    if (token.text() != nullptr && !tokenizer.id_of(*token.text())) continue;
    variables.push_back({name, token});
  }
  return variables;
}

}  // namespace moeloom
