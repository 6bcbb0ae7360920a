#include "fields/option_table.hpp"

#include "io/text_file.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// 0 and 0.0, no and false, or the same text.
bool says_the_same(const std::string& text, const std::string& other) {
  const auto number = value_in<double>(text);
  const auto answer = boolean_from_text(text);
  return text == other || (number && number == value_in<double>(other)) ||
         (answer && answer == boolean_from_text(other));
}

}  // namespace

Option& Option::at_least(Index least) {
  must([least](double value) { return value >= static_cast<double>(least); },
       "must be at least " + value_text(least));
  return must([](double value) { return value <= static_cast<double>(kLargestCount); },
              "is too large; at most " + value_text(kLargestCount));
}

bool Option::asks() const {
  const std::string value = get();
  return value != by_default && value != nothing;
}

bool Option::is_there() const {
  return asks() || (was_said && get() != nothing);
}

const Option* OptionTable::find(const std::string& name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

std::string OptionTable::unknown(const std::string& before, const std::string& name) const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant = closest(name, names);
  return "unknown option \"" + before + name + "\"" +
         (meant ? "; did you mean " + before + *meant + "?" : "; `help` lists all");
}

Layer OptionTable::file(const std::filesystem::path& path, Violations& unreadable,
                        std::vector<std::string>* gone) const {
  Layer layer;
  try {
    layer = parse_config(read_text_file(path), path.string(), unreadable);
  } catch (const IoError& error) {
    unreadable.add(error.what(), cause_of(error));
  }
  const auto note_gone = [&](const std::string& name, const Given& given, const std::string& what) {
    if (gone != nullptr)
      gone->push_back(name + " = " + given.value + " is gone: " + what);
    else
      unreadable.add(given.origin + " = " + given.value + " is gone: " + what + "; remove it");
  };
  std::erase_if(layer, [&](const auto& setting) {
    const auto& [name, given] = setting;
    if (find(name) != nullptr && name != "config") {
      const auto values = gone_values_.find(name);
      if (values == gone_values_.end() || !values->second.contains(given.value)) return false;
      note_gone(name, given, values->second.at(given.value));
    } else if (const auto was = gone_.find(name); was == gone_.end()) {
      unreadable.add(given.origin.substr(0, given.origin.size() - name.size()) + unknown("", name));
    } else if (const auto& [now, what] = was->second; !says_the_same(given.value, now)) {
      note_gone(name, given, what);
    }
    return true;
  });
  return layer;
}

void OptionTable::set(const Layer& layer, Violations& unreadable) {
  for (Option& option : options_) {
    const auto given = layer.find(option.name);
    if (given == layer.end()) continue;
    option.was_said = true;
    try {
      option.set(given->second.value);
    } catch (const BadValue& bad) {
      unreadable.add(given->second.origin + " = \"" + given->second.value + "\": " + bad.what());
    }
  }
}

void OptionTable::check(Violations& violations) const {
  for (const Option& option : options_) {
    const std::string value = option.get(), flag = "`" + option.name + "`";
    violations.unless(!option.is_needed || !value.empty(), flag + " " + option.value_name + " is needed");
    const auto number = value_in<double>(value);
    const auto fails = [&](const auto& check) { return number && !check.first(*number); };
    if (const auto failed = std::ranges::find_if(option.checks, fails); failed != option.checks.end())
      violations.add(option.name + " = " + value + " " + failed->second);
    const Option* owner = find(option.belongs_to);
    if (option.is_there() && owner != nullptr && !owner->is_there())
      violations.add(flag + " is that of `" + owner->name + "` " + owner->value_name +
                     ", which is not given; remove it");
    if (!option.asks()) continue;
    for (const auto& [name, values, why] : option.contradictions) {
      const Option* other = find(name);
      if (other == nullptr) continue;
      const std::string found = other->get();
      if (values.empty() ? other->asks() : std::ranges::count(values, found) > 0)
        violations.add(flag + " cannot be had with `" + name + "`" + (values.empty() ? "" : " " + found) +
                       ": " + why + "; remove one");
    }
  }
}

}  // namespace moeloom
