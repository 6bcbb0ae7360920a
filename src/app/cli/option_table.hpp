// A command's options as a table: each row ties a name to a field, with its text both ways.
//
// Boost.Program_options cuts the command line into names and values and prints the help; reading the values
// is done here, so that a mistake in a file and one on the command line get the same answer, and all get one.
#pragma once

#include "moeloom/base/violations.hpp"

#include <functional>
#include <map>
#include <set>
#include <type_traits>

#include "cli/option_values.hpp"

namespace moeloom {

struct Option {
  std::string group;
  std::string name;
  std::string value_name;
  std::string help;
  bool is_boolean = false;
  char joins = 0;  // given again, it says more: values are joined by it; 0: the last value counts
  std::function<void(const std::string&)> set;  // throws BadValue
  std::function<std::string()> get;
};

/// A value and where it was said: "--lr" or "tiny.conf:4: lr".
struct Given {
  std::string value;
  std::string origin;
};
using Layer = std::map<std::string, Given>;

/// What is wrong with what was said, and the options whose values are therefore not known.
struct Mistakes {
  Violations violations;
  std::set<std::string> unread;
};

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
    options_.back().is_boolean = std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>;
  }
  /// The option that was added last may be given several times, and reads its values joined by this.
  void repeat(char joins) { options_.back().joins = joins; }
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
  /// The next word without dashes sets this option.
  void positional(const std::string& name) { positional_.push_back(name); }

  const std::vector<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  std::vector<std::string> names() const;
  /// The options by group, with their present values as defaults.
  std::string help() const;

  /// What the command line says; of an option given twice the last.
  Layer command_line(int argc, const char* const* argv, Mistakes& mistakes) const;
  /// What a file says. One that cannot be read could have said anything: then no option is known.
  Layer file(const std::filesystem::path& path, Mistakes& mistakes) const;
  /// The same of a file that an earlier build may have written: what became of options that are gone is
  /// added.
  Layer file(const std::filesystem::path& path, Mistakes& mistakes, std::vector<std::string>& gone) const;
  /// Sets the fields of a layer.
  void set(const Layer& layer, Mistakes& mistakes) const;

 private:
  Layer read_file(const std::filesystem::path& path, Mistakes& mistakes,
                  std::vector<std::string>* gone) const;
  void note_unknown(const std::string& origin, const std::string& name, const std::string& dashes,
                    Mistakes& mistakes) const;
  std::vector<std::string> with_whole_pairs(int argc, const char* const* argv, Mistakes& mistakes) const;

  std::vector<Option> options_;
  std::string group_;
  std::vector<std::string> positional_;
};

/// Whether --help or -h is among the arguments.
bool help_requested(int argc, const char* const* argv);

/// The command line alone, into the fields -> what it named.
Layer read_command_line(const OptionTable& table, int argc, const char* const* argv, Mistakes& mistakes);

}  // namespace moeloom
