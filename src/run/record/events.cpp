#include "moeloom/run/events.hpp"

#include <array>
#include <cstdio>

namespace moeloom {
namespace {

std::string in_quotes(std::string_view value) {
  if (!value.empty() && value.find_first_of(" =\"\\\t\n\r") == std::string_view::npos) {
    return std::string(value);
  }
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\r')
      text += "\\r";
    else if (c == '"' || c == '\\')
      text += {'\\', c};
    else
      text += c;
  }
  return text + '"';
}

}  // namespace

Event& Event::with(std::string_view key, std::string_view value) {
  fields_.emplace_back(key, value);
  return *this;
}

Event& Event::with(std::string_view key, Index value) {
  return with(key, std::string_view(std::to_string(value)));
}

Event& Event::with(std::string_view key, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return with(key, std::string_view(text.data()));
}

Event& Event::with(std::string_view key, bool value) {
  return with(key, std::string_view(value ? "yes" : "no"));
}

std::string Event::text() const {
  std::string text;
  for (const auto& [key, value] : fields_) text += (text.empty() ? "" : " ") + key + '=' + in_quotes(value);
  return text;
}

}  // namespace moeloom
