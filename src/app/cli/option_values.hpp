// Values of options as text and back: what is written is read to the same value, and nothing else is taken.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/base/text.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace moeloom {

/// A text that is no value; what() says what was expected.
class BadValue : public Error {
 public:
  using Error::Error;
};

void read_value(const std::string& text, Index& value);
void read_value(const std::string& text, std::uint64_t& value);
void read_value(const std::string& text, double& value);  // finite
void read_value(const std::string& text, bool& value);    // 1 true on yes, 0 false off no
void read_value(const std::string& text, std::string& value);
void read_value(const std::string& text, std::filesystem::path& value);
void read_value(const std::string& text, std::vector<Index>& value);        // 0,3,5
void read_value(const std::string& text, std::vector<std::string>& value);  // words with commas
void read_value(const std::string& text, StepRange& value);                 // 10:20

std::string value_text(Index value);
std::string value_text(std::uint64_t value);
std::string value_text(double value);  // the shortest text that reads back to the same bits
std::string value_text(bool value);
std::string value_text(const std::string& value);
std::string value_text(const std::filesystem::path& value);
std::string value_text(const std::vector<Index>& value);
std::string value_text(const std::vector<std::string>& value);
std::string value_text(const StepRange& value);

/// "auto" is no value.
template <typename T>
void read_value(const std::string& text, std::optional<T>& value) {
  if (text == "auto") {
    value.reset();
    return;
  }
  T read{};
  read_value(text, read);
  value = read;
}
template <typename T>
std::string value_text(const std::optional<T>& value) {
  return value ? value_text(*value) : "auto";
}

/// "4GiB", "512MiB", "64KiB" (powers of 1024), "5GB", "500MB", "64KB" (of 1000) or plain bytes.
Index read_bytes(const std::string& text);
std::string exact_bytes_text(Index bytes);

/// The word of `known` that `word` was probably meant to be, or none if all are far.
std::optional<std::string> closest(const std::string& word, const std::vector<std::string>& known);

}  // namespace moeloom
