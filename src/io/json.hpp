// JSON that strangers wrote: parsed strictly, refused with the file and the place.
#pragma once

#include "moeloom/base/errors.hpp"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace moeloom {

inline constexpr int kMaxJsonDepth = 64;

/// A value in a few words, for messages: `"32"`, `7`, `null`, `an array of 3`, `an object`.
template <typename Json>
std::string described(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  constexpr std::size_t kLongest = 60;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

/// Names seen in each open object. The library keeps the last of two equal names without a word.
class JsonNames {
 public:
  explicit JsonNames(const std::string& origin) : origin_(origin) {}

  template <typename Json>
  void see(int depth, typename Json::parse_event_t event, const Json& parsed) {
    using Event = typename Json::parse_event_t;
    if (depth > kMaxJsonDepth)
      throw IoError(origin_ + ": JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.template get<std::string>()).second)
      throw IoError(origin_ + ": " + described(parsed) + " is given twice in one JSON object");
  }

 private:
  const std::string& origin_;
  std::vector<std::set<std::string>> open_;
};

/// Throws IoError with line and column; also for a name given twice, and what is nested too deeply.
template <typename Json>
Json parse_json(std::string_view text, const std::string& origin) {
  JsonNames names(origin);
  try {
    return Json::parse(text.begin(), text.end(), [&](int depth, auto event, const Json& parsed) {
      names.see<Json>(depth, event, parsed);
      return true;
    });
  } catch (const nlohmann::detail::exception& error) {
    // The library's text opens with its own exception's name in brackets.
    const std::string_view what = error.what();
    throw IoError(origin + ": not JSON: " + std::string(what.substr(what.find("] ") + 2)));
  }
}

}  // namespace moeloom
