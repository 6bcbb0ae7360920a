// A command's options as a table: a row is all that is said of an option.
//
// Words come first: a name that is unknown and a value that cannot be read are answered together, and alone.
// Only when every word has been read are values judged, by their rows and by what rows say of each other.
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

#include "fields/config_file.hpp"
#include "fields/option_values.hpp"

namespace moeloom {

struct Option {
  struct Contradiction {
    std::string option;
    std::vector<std::string> values;  // none: whatever it asks for
    std::string why;
  };

  std::string group, name, value_name, help;
  std::string why;  // there is such an option: whose it is, or what it is for; for us, so help leaves it out
  std::function<void(const std::string&)> set;  // throws BadValue
  std::function<std::string()> get;
  std::string by_default;
  std::string nothing;  // beside the default, the text that asks for nothing: 0, false, or an empty one
  bool is_boolean = false;
  bool is_needed = false;
  bool was_said = false;
  char joins = 0;          // given again, it says more: values are joined by it; 0: the last value counts
  std::string field = {};  // what the library's errors call it (flag_words.hpp); empty: nothing
  std::string belongs_to = {};  // an option without which it has no meaning
  std::vector<Contradiction> contradictions = {};
  std::vector<std::pair<std::function<bool(double)>, std::string>> checks = {};

  Option& called(const std::string& words) { return field = words, *this; }
  Option& given_again(char between) { return joins = between, *this; }
  Option& needed() { return is_needed = true, *this; }
  /// Where the other one is not there, this one may not be.
  Option& with(const std::string& other) { return belongs_to = other, *this; }
  /// It may not ask for anything where that one does, or has one of the values.
  Option& against(const std::string& other, const std::string& because,
                  const std::vector<std::string>& values = {}) {
    return contradictions.push_back({other, values, because}), *this;
  }
  /// holds(value), or else "name = value" and `words` are a violation; the first that does not hold is. A
  /// value that is no number, as auto, has nothing against it.
  Option& must(std::function<bool(double)> holds, const std::string& words) {
    return checks.emplace_back(std::move(holds), words), *this;
  }
  Option& at_least(Index least);  // nor above kLargestCount
  Option& positive() {
    return must([](double value) { return value > 0; }, "must be positive");
  }
  Option& not_negative() {
    return must([](double value) { return value >= 0; }, "must not be negative");
  }
  Option& below_one() {
    return must([](double value) { return value >= 0 && value < 1; }, "must lie in [0, 1)");
  }

  /// Something else than by default, and something at all.
  bool asks() const;
  /// The same, or it was said though it is the default.
  bool is_there() const;
};

/// What a value of such a field says that asks for nothing.
template <typename T>
std::string nothing_of() {
  if (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) return "false";
  const bool is_number = std::is_arithmetic_v<T> || std::is_same_v<T, std::optional<double>> ||
                         std::is_same_v<T, std::optional<Index>>;
  return is_number ? "0" : "";
}

/// The fields that are tied to it must outlive it. What they hold when they are tied is taken for their
/// defaults by check() and help().
class OptionTable {
 public:
  /// Options added from here on stand under this heading.
  void group(const std::string& title) { group_ = title; }
  /// read(text) is the field's value or throws BadValue; write(field) is the text that reads back to it.
  template <typename T, typename Read = T (*)(const std::string&), typename Write = std::string (*)(const T&)>
  Option& add(const std::string& name, const std::string& value_name, const std::string& help,
              const std::string& why, T& field, Read read = value_from<T>, Write write = value_text<T>) {
    constexpr bool is_read_as_usual = std::is_same_v<Read, T (*)(const std::string&)>;
    const auto get = [&field, write] { return std::string(write(field)); };
    options_.push_back({.group = group_,
                        .name = name,
                        .value_name = value_name,
                        .help = help,
                        .why = why,
                        .set = [&field, read](const std::string& text) { field = read(text); },
                        .get = get,
                        .by_default = get(),
                        .nothing = nothing_of<T>(),
                        .is_boolean = is_read_as_usual &&
                                      (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>)});
    return options_.back();
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
  /// The next word without dashes sets this option, and so do those behind it where it can be given again and
  /// is the last.
  void positional(const std::string& name) { positional_.push_back(name); }
  /// An option that earlier builds had. `now`: the value that stands for what happens without it, which a
  /// file may say; `what` happens.
  void gone(const std::string& name, const std::string& now, const std::string& what) {
    gone_[name] = {now, what};
  }
  /// A value of `name` that earlier builds had; `what` happens now, as where nothing is said.
  void gone_value(const std::string& name, const std::string& value, const std::string& what) {
    gone_values_[name][value] = what;
  }

  const std::vector<Option>& options() const { return options_; }
  const Option* find(const std::string& name) const;
  const std::vector<std::string>& positional() const { return positional_; }

  /// What a file says. What became of options that are gone is added to `gone`, in one line each; where there
  /// is none, they are unreadable.
  Layer file(const std::filesystem::path& path, Violations& unreadable, std::vector<std::string>* gone) const;
  /// Sets the fields of a layer.
  void set(const Layer& layer, Violations& unreadable);
  /// What each row says against its value, and against those of others.
  void check(Violations& violations) const;

  /// "unknown option", `before` the name, and what was meant, perhaps.
  std::string unknown(const std::string& before, const std::string& name) const;

 private:
  std::vector<Option> options_;
  std::string group_;
  std::vector<std::string> positional_;
  std::map<std::string, std::pair<std::string, std::string>> gone_;
  std::map<std::string, std::map<std::string, std::string>> gone_values_;
};

}  // namespace moeloom
