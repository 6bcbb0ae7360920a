#include "cli/option_table.hpp"

#include "moeloom/io/text_file.hpp"

#include <algorithm>
#include <sstream>

#include "cli/environment.hpp"
#include <boost/program_options.hpp>

namespace moeloom {
namespace {

namespace po = boost::program_options;

/// One heading a group, in the order in which groups begin.
po::options_description description_of(const std::vector<Option>& options) {
  constexpr unsigned kColumns = 110;
  po::options_description all(kColumns);
  for (std::size_t i = 0; i < options.size();) {
    const std::string group = options[i].group;
    po::options_description part(group, kColumns);
    for (; i < options.size() && options[i].group == group; ++i) {
      auto* semantic = po::value<std::string>()->value_name(options[i].value_name);
      const std::string value = options[i].get();
      if (!value.empty()) semantic->default_value(value);
      part.add_options()(options[i].name.c_str(), semantic, options[i].help.c_str());
    }
    all.add(part);
  }
  return all;
}

/// "--name=value" or "--name" -> name; empty for a word without dashes. No guessing: a script that says --log
/// must not change its meaning when a longer name appears.
std::string name_in(const std::string& word) {
  return word.starts_with("--") ? word.substr(2, word.find('=') - 2) : "";
}

/// A boolean takes the next word only if that says yes or no, or names the option's default.
bool takes(const Option& option, const std::string& next, const OptionTable& table) {
  return option.is_boolean ? boolean_from_text(next) || next == option.get()
                           : table.find(name_in(next)) == nullptr;
}

}  // namespace

Option& Option::must(std::function<bool(double)> holds, const std::string& words) {
  checks.emplace_back(std::move(holds), words);
  return *this;
}

Option& Option::at_least(Index least) {
  must([least](double value) { return value >= static_cast<double>(least); },
       "must be at least " + value_text(least));
  return must([](double value) { return value <= static_cast<double>(kLargestCount); },
              "is too large; at most " + value_text(kLargestCount));
}

Option& Option::positive() {
  return must([](double value) { return value > 0; }, "must be positive");
}

Option& Option::not_negative() {
  return must([](double value) { return value >= 0; }, "must not be negative");
}

Option& Option::below_one() {
  return must([](double value) { return value >= 0 && value < 1; }, "must lie in [0, 1)");
}

const Option* OptionTable::find(const std::string& name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

std::string OptionTable::help() const {
  std::ostringstream text;
  text << description_of(options_);
  return text.str();
}

std::string OptionTable::unknown(const std::string& dashes, const std::string& name) const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant = closest(name, names);
  return "unknown option \"" + dashes + name + "\"" +
         (meant ? "; did you mean " + dashes + *meant + "?" : "; --help lists all");
}

Layer OptionTable::command_line(int argc, const char* const* argv, Violations& unreadable) const {
  Layer layer;
  auto place = positional_.begin();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (place != positional_.end() && layer.emplace(*place, Given{word, *place}).second)
        ++place;
      else
        unreadable.add("unexpected \"" + word + "\"; --help lists what is known");
      continue;
    }
    const std::string name = name_in(word);
    const Option* option = find(name);
    const bool has_next = i + 1 < argc;
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos)
      value = word.substr(equals + 1);
    else if (has_next && (option ? takes(*option, argv[i + 1], *this) : name_in(argv[i + 1]).empty()))
      value = argv[++i];
    else if (option != nullptr && option->is_boolean)
      value = "true";
    if (option == nullptr)
      unreadable.add(unknown("--", name));
    else if (!value)
      unreadable.add(word + " needs a value: " + word + " " + option->value_name);
    else if (option->joins != 0 && layer.contains(name))
      layer[name].value += option->joins + *value;
    else
      layer[name] = {*value, "--" + name};
  }
  return layer;
}

Layer OptionTable::file(const std::filesystem::path& path, Violations& unreadable,
                        std::vector<std::string>& gone) const {
  Layer layer;
  try {
    layer = parse_config(read_text_file(path), path.string(), unreadable);
  } catch (const IoError& error) {
    unreadable.add(error.what());
  }
  std::erase_if(layer, [&](const auto& setting) {
    const auto& [name, given] = setting;
    if (find(name) != nullptr && name != "config") return false;
    if (const auto was = gone_.find(name); was == gone_.end())
      unreadable.add(given.origin.substr(0, given.origin.size() - name.size()) + unknown("", name));
    else if (given.value != was->second.now)
      gone.push_back(name + " = " + given.value + " is gone: " + was->second.what);
    return true;
  });
  return layer;
}

void OptionTable::set(const Layer& layer, Violations& unreadable) const {
  for (const auto& [name, given] : layer) {
    try {
      find(name)->set(given.value);
    } catch (const BadValue& bad) {
      unreadable.add(given.origin + " = \"" + given.value + "\": " + bad.what());
    }
  }
}

void OptionTable::check(Violations& violations) const {
  for (const Option& option : options_) {
    const std::string value = option.get();
    violations.unless(!option.is_needed || !value.empty(),
                      "--" + option.name + " " + option.value_name + " is needed");
    const auto number = value_in<double>(value);
    const auto fails = [&](const auto& check) { return number && !check.first(*number); };
    if (const auto failed = std::ranges::find_if(option.checks, fails); failed != option.checks.end())
      violations.add(option.name + " = " + value + " " + failed->second);
  }
}

bool help_requested(int argc, const char* const* argv) {
  return std::any_of(argv + std::min(argc, 1), argv + argc,
                     [](const std::string word) { return word == "--help" || word == "-h"; });
}

Layer read_command_line(const OptionTable& table, int argc, const char* const* argv) {
  Violations unreadable;
  Layer layer = table.command_line(argc, argv, unreadable);
  table.set(layer, unreadable);
  unreadable.throw_if_any();
  return layer;
}

Layer read_command_line(const OptionTable& table, int argc, const char* const* argv, Violations& violations) {
  Layer layer = read_command_line(table, argc, argv);
  table.check(violations);
  return layer;
}

}  // namespace moeloom
