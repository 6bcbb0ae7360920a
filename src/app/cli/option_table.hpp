// A command's options as a table: a row is all that is said of an option.
//
// Words come first: a name that is unknown and a value that cannot be read are answered together, and alone.
// Only when every word has been read are values judged, by their rows and by what they have to do with each
// other. Boost.Program_options lays the help out and reads nothing: it stops at the first mistake, and knows
// neither the line of a file nor a value that runs to the end of one.
#pragma once

#include "moeloom/base/violations.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/config_file.hpp"
#include "cli/option_values.hpp"

namespace moeloom {

struct Option {
  std::string group;
  std::string name;
  std::string value_name;
  std::string help;
  std::string why;  // there is such an option: whose it is, or what it is for; for us, so help leaves it out
  std::function<void(const std::string&)> set;  // throws BadValue
  std::function<std::string()> get;
  bool is_boolean = false;
  char joins = 0;          // given again, it says more: values are joined by it; 0: the last value counts
  std::string field = {};  // what the library's errors call it (flag_words.hpp); empty: nothing
  bool is_needed = false;
  std::vector<std::pair<std::function<bool(double)>, std::string>> checks = {};

  Option& called(const std::string& words) { return field = words, *this; }
  Option& given_again(char between) { return joins = between, *this; }
  Option& needed() { return is_needed = true, *this; }
  /// holds(value), or else "name = value" and `words` are a violation; the first that does not hold is. A
  /// value that is no number, as auto, has nothing against it.
  Option& must(std::function<bool(double)> holds, const std::string& words);
  Option& at_least(Index least);  // nor above kLargestCount
  Option& positive();
  Option& not_negative();
  Option& below_one();
};

/// The fields that are tied to it must outlive it.
class OptionTable {
 public:
  /// Options added from here on stand under this heading.
  void group(const std::string& title) { group_ = title; }
  /// read(text) is the field's value or throws BadValue; write(field) is the text that reads back to it.
  template <typename T, typename Read, typename Write>
  Option& add(const std::string& name, const std::string& value_name, const std::string& help,
              const std::string& why, T& field, Read read, Write write) {
    options_.push_back({.group = group_,
                        .name = name,
                        .value_name = value_name,
                        .help = help,
                        .why = why,
                        .set = [&field, read](const std::string& text) { field = read(text); },
                        .get = [&field, write] { return std::string(write(field)); }});
    return options_.back();
  }
  template <typename T>
  Option& add(const std::string& name, const std::string& value_name, const std::string& help,
              const std::string& why, T& field) {
    Option& option =
        add(name, value_name, help, why, field, value_from<T>, [](const T& v) { return value_text(v); });
    option.is_boolean = std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>;
    return option;
  }
  /// One of a few words.
  template <typename T>
  Option& add_choice(const std::string& name, const std::string& help, const std::string& why, T& field,
                     const std::vector<std::pair<std::string, T>>& choices) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    const auto read = [choices, words](const std::string& text) {
      for (const auto& [word, value] : choices)
        if (word == text) return value;
      throw BadValue("valid: " + joined(words));
    };
    return add(name, joined(words, "|"), help, why, field, read, [choices](const T& chosen) {
      for (const auto& [word, value] : choices)
        if (value == chosen) return word;
      return std::string();
    });
  }
  /// The next word without dashes sets this option.
  void positional(const std::string& name) { positional_.push_back(name); }
  /// An option that earlier builds had: a file may say it, without effect. `now`: the value that stands for
  /// what happens without it; `what` happens.
  void gone(const std::string& name, const std::string& now, const std::string& what) {
    gone_[name] = {now, what};
  }

  const std::vector<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  /// The options by group, with their present values as defaults.
  std::string help() const;

  /// What the command line says; of an option given twice the last.
  Layer command_line(int argc, const char* const* argv, Violations& unreadable) const;
  /// What a file says; what became of options that are gone is added, in one line each.
  Layer file(const std::filesystem::path& path, Violations& unreadable, std::vector<std::string>& gone) const;
  /// Sets the fields of a layer.
  void set(const Layer& layer, Violations& unreadable) const;
  /// What each row says against its value.
  void check(Violations& violations) const;

 private:
  struct Gone {
    std::string now;
    std::string what;
  };

  std::string unknown(const std::string& dashes, const std::string& name) const;

  std::vector<Option> options_;
  std::string group_;
  std::vector<std::string> positional_;
  std::map<std::string, Gone> gone_;
};

/// Whether --help or -h is among the arguments.
bool help_requested(int argc, const char* const* argv);

/// The command line alone, into the fields -> what it named. Throws ConfigError with every word that cannot
/// be read.
Layer read_command_line(const OptionTable& table, int argc, const char* const* argv);
/// The same, and what the rows say against the values.
Layer read_command_line(const OptionTable& table, int argc, const char* const* argv, Violations& violations);

}  // namespace moeloom
