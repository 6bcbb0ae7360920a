// JSON that strangers wrote: parsed strictly and in time that grows with its length, refused with the file
// and the place.
#pragma once

#include "moeloom/base/errors.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace moeloom {

inline constexpr std::size_t kMaxJsonDepth = 64;

/// A value in a few words, for messages: `"32"`, `7`, `null`, `an array of 3`, `an object`.
template <typename Json>
std::string described(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  constexpr std::size_t kLongest = 60;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while ((text[end] & 0xc0) == 0x80) --end;  // no part of a letter
  return text.substr(0, end) + "...";
}

/// Makes values of what the library's parser finds. Its own builder with a callback looks through all of an
/// object after each value that ends (a header of 650 000 tensors took more than 90 s), and keeps the last of
/// two equal names without a word.
template <typename Json>
class JsonBuilder {
 public:
  using UseMember = std::function<void(const std::string&, Json)>;

  /// use: takes each member of the outermost object as soon as it is whole, and the object then stays empty.
  JsonBuilder(const std::string& origin, UseMember use) : origin_(origin), use_(std::move(use)) {}

  Json take() { return std::move(root_); }

  bool null() { return end_after(place({})); }
  bool boolean(bool value) { return end_after(place(value)); }
  bool number_integer(std::int64_t value) { return end_after(place(value)); }
  bool number_unsigned(std::uint64_t value) { return end_after(place(value)); }
  bool number_float(double value, const std::string&) { return end_after(place(value)); }
  bool string(std::string& value) { return end_after(place(std::move(value))); }
  bool binary(typename Json::binary_t&) { return false; }  // not in a text
  bool start_object(std::size_t) { return open(Json::value_t::object); }
  bool start_array(std::size_t) { return open(Json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    name_ = std::move(name);
    if (names_.back().insert(name_).second) return true;
    throw IoError(origin_ + ": " + described(Json(name_)) + " is given twice in one JSON object");
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    // The library's text opens with its own exception's name in brackets.
    const std::string_view what = error.what();
    throw IoError(origin_ + ": not JSON: " + std::string(what.substr(what.find("] ") + 2)));
  }

 private:
  /// The next member belongs to the outermost object and is handed out.
  bool streams() const { return use_ && open_.size() == 1 && root_.is_object(); }

  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (streams()) return &(member_ = std::move(value));
    Json& around = *open_.back();
    if (around.is_object())
      return append(around.template get_ref<typename Json::object_t&>(), std::move(value));
    around.push_back(std::move(value));
    return &around.back();
  }

  /// An ordered object would look for the name once more, one by one.
  Json* append(typename Json::object_t& object, Json value) {
    if constexpr (requires { object.emplace_back(name_, std::move(value)); })
      return &object.emplace_back(name_, std::move(value)).second;
    else
      return &object.emplace(name_, std::move(value)).first->second;
  }

  bool open(typename Json::value_t type) {
    if (open_.size() >= kMaxJsonDepth)
      throw IoError(origin_ + ": JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    if (streams()) member_name_ = name_;
    open_.push_back(place(type));
    names_.emplace_back();
    return true;
  }

  bool close() {
    open_.pop_back();
    names_.pop_back();
    if (streams()) use_(member_name_, std::move(member_));
    return true;
  }

  bool end_after(const Json*) {
    if (streams()) use_(name_, std::move(member_));
    return true;
  }

  const std::string& origin_;
  UseMember use_;
  Json root_, member_;
  std::string name_, member_name_;
  std::vector<Json*> open_;                   // what each points to stays where it is until it is closed
  std::vector<std::set<std::string>> names_;  // seen in each of them
};

/// Throws IoError with line and column; also for a name given twice, and what is nested too deeply. With
/// `use` the members of the outermost object are handed out one by one, and what is returned has none.
template <typename Json>
Json parse_json(std::string_view text, const std::string& origin,
                typename JsonBuilder<Json>::UseMember use = {}) {
  JsonBuilder<Json> builder(origin, std::move(use));
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace moeloom
