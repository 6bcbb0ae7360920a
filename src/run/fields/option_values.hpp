// Values of options as text and back: what is written is read to the same value, and nothing else is taken.
#pragma once

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/run/options.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

namespace moeloom {

/// A text that is no value; what() says what was expected.
class BadValue : public Error {
 public:
  using Error::Error;
};

void read_value(const std::string& text, bool& value);       // 1 true on yes, 0 false off no
void read_value(const std::string& text, StepRange& value);  // 10:20, not empty
/// A number, finite; an optional, of which "auto" is none; a list, 0,3,5; or a text as it is.
template <typename T>
void read_value(const std::string& text, T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error == std::errc() && end == last && std::isfinite(static_cast<double>(value))) return;
    throw BadValue(std::is_floating_point_v<T> ? "expected a finite number"
                   : std::is_signed_v<T>       ? "expected a whole number"
                                               : "expected a whole number from 0 to 2^64 - 1");
  } else if constexpr (requires { value.reset(); }) {
    value.reset();
    if (text != "auto") read_value(text, value.emplace());
  } else if constexpr (requires { value.emplace_back(); }) {
    value.clear();
    for (const std::string& word : text.empty() ? std::vector<std::string>() : split(text, ',')) {
      if (word.empty()) throw BadValue("expected values with commas between them");
      read_value(word, value.emplace_back());
    }
  } else {
    value = text;
  }
}

/// Of a number the shortest text that reads back to the same bits.
template <typename T>
std::string value_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, StepRange>) {
    return value_text(value.from) + ":" + value_text(value.to);
  } else if constexpr (std::is_arithmetic_v<T>) {
    std::array<char, 64> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  } else if constexpr (requires { value.has_value(); }) {
    return value ? value_text(*value) : "auto";
  } else if constexpr (requires(T list) { list.emplace_back(); }) {
    std::vector<std::string> words;
    for (const auto& each : value) words.push_back(value_text(each));
    return joined(words, ",");
  } else {
    return value;
  }
}

template <typename T>
T value_from(const std::string& text) {
  T value{};
  read_value(text, value);
  return value;
}

/// None where the text is no such value.
template <typename T>
std::optional<T> value_in(const std::string& text) try {
  return value_from<T>(text);
} catch (const BadValue&) {
  return std::nullopt;
}

/// "4GiB", "512MiB", "64KiB" (powers of 1024), "5GB", "500MB", "64KB" (of 1000) or plain bytes.
Index read_bytes(const std::string& text);
std::string exact_bytes_text(Index bytes);

inline constexpr std::string_view kBooleanTexts = "1, true, on, yes, 0, false, off, no";
/// In any case, with spaces around it; none for any other text.
std::optional<bool> boolean_from_text(std::string_view text);

/// The word of `known` that `word` was probably meant to be, or none if all are far.
std::optional<std::string> closest(const std::string& word, const std::vector<std::string>& known);

}  // namespace moeloom
