// A command's options as a table: each row ties a name to a field, with its text both ways.
//
// Boost.Program_options cuts the command line into names and values and prints the help; reading the values
// is done here, so that a mistake in a file and one on the command line get the same answer, and all get one.
#pragma once

#include <functional>
#include <map>
#include <type_traits>

#include "option_values.hpp"

namespace moeloom {

struct Option {
  std::string group;
  std::string name;
  std::string value_name;
  std::string help;
  bool is_boolean = false;
  std::function<void(const std::string&)> set;  // throws BadValue
  std::function<std::string()> get;
};

/// A value and where it was said: "--lr" or "tiny.conf:4: lr".
struct Given {
  std::string value;
  std::string origin;
};
using Layer = std::map<std::string, Given>;

/// The fields that are tied to it must outlive it.
class OptionTable {
 public:
  /// Options added from here on stand under this heading.
  void group(const std::string& title) { group_ = title; }
  void add(const std::string& name, const std::string& value_name, const std::string& help,
           std::function<void(const std::string&)> set, std::function<std::string()> get);
  template <typename T>
  void add(const std::string& name, const std::string& value_name, const std::string& help, T& field) {
    add(
        name, value_name, help, [&field](const std::string& text) { read_value(text, field); },
        [&field] { return value_text(field); });
    options_.back().is_boolean = std::is_same_v<T, bool>;
  }
  /// One of a few words.
  template <typename T>
  void add_choice(const std::string& name, const std::string& help, T& field,
                  const std::vector<std::pair<std::string, T>>& choices) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    add(
        name, joined(words, "|"), help,
        [&field, choices, words](const std::string& text) {
          for (const auto& [word, value] : choices)
            if (word == text) return static_cast<void>(field = value);
          throw BadValue("valid: " + joined(words));
        },
        [&field, choices] {
          for (const auto& [word, value] : choices)
            if (value == field) return word;
          return std::string();
        });
  }
  /// A word without dashes sets this option.
  void positional(const std::string& name) { positional_ = name; }

  const std::vector<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  std::vector<std::string> names() const;
  /// The options by group, with their present values as defaults.
  std::string help() const;

  /// What the command line says; of an option given twice the last. Adds to `violations` what it cannot read.
  Layer command_line(int argc, const char* const* argv, std::vector<std::string>& violations) const;
  /// What a file says.
  Layer file(const std::filesystem::path& path, std::vector<std::string>& violations) const;
  /// Sets the fields of a layer; adds to `violations` each value that cannot be read.
  void set(const Layer& layer, std::vector<std::string>& violations) const;

 private:
  std::string unknown(const std::string& origin, const std::string& name, const std::string& dashes) const;

  std::vector<Option> options_;
  std::string group_;
  std::string positional_;
};

/// Whether --help or -h is among the arguments.
bool help_requested(int argc, const char* const* argv);

/// The command line alone, into the fields. Throws ConfigError with everything that is wrong.
void read_command_line(const OptionTable& table, int argc, const char* const* argv);

}  // namespace moeloom
