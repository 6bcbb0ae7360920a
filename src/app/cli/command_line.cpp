#include "cli/command_line.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include "cli/flag_names.hpp"
#include "fields/option_values.hpp"
#include <boost/program_options.hpp>

namespace moeloom {
namespace {

namespace po = boost::program_options;

/// "--name=value" or "--name" -> name; empty for a word without dashes. No guessing: a script that says --log
/// must not change its meaning when a longer name appears.
std::string name_in(const std::string& word) {
  return word.starts_with("--") ? word.substr(2, word.find('=') - 2) : "";
}

/// A switch takes the next word only if that says yes or no, or names its default.
bool takes(const OptionTable& table, const Option* option, const std::string& next) {
  if (option == nullptr) return name_in(next).empty();
  if (option->is_boolean) return boolean_from_text(next) || next == option->by_default;
  return table.find(name_in(next)) == nullptr;
}

}  // namespace

Help help_of(const OptionTable& table) {
  constexpr unsigned kColumns = 110;
  po::options_description all(kColumns);
  for (auto option = table.options().begin(); option != table.options().end();) {
    po::options_description part(option->group, kColumns);
    for (const std::string& group = option->group; option != table.options().end() && option->group == group;
         ++option) {
      auto* semantic = po::value<std::string>()->value_name(option->value_name);
      if (const std::string value = option->get(); !value.empty()) semantic->default_value(value);
      part.add_options()(option->name.c_str(), semantic, with_flag_names(option->help).c_str());
    }
    all.add(part);
  }
  std::ostringstream text;
  text << all;
  return {text.str(), table};
}

Layer command_line(const OptionTable& table, int argc, const char* const* argv, Violations& unreadable) {
  Layer layer;
  auto place = table.positional().begin();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      const Option* last = place == table.positional().begin() ? nullptr : table.find(*std::prev(place));
      if (place != table.positional().end() && layer.emplace(*place, Given{word, *place}).second)
        ++place;
      else if (place == table.positional().end() && last != nullptr && last->joins != 0)
        layer[last->name].value += last->joins + word;
      else
        unreadable.add("unexpected \"" + word + "\"; --help lists what is known");
      continue;
    }
    const std::string name = name_in(word);
    const Option* option = table.find(name);
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos)
      value = word.substr(equals + 1);
    else if (i + 1 < argc && takes(table, option, argv[i + 1]))
      value = argv[++i];
    else if (option != nullptr && option->is_boolean)
      value = "true";
    if (option == nullptr)
      unreadable.add(table.unknown("--", name));
    else if (!value)
      unreadable.add(word + " needs a value: " + word + " " + option->value_name);
    else if (option->joins != 0 && layer.contains(name))
      layer[name].value += option->joins + *value;
    else
      layer[name] = {*value, "--" + name};
  }
  return layer;
}

bool help_requested(int argc, const char* const* argv, Help (*help)()) {
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::none_of(argv + std::min(argc, 1), argv + argc, asks)) return false;
  const OptionTable table = help().table;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (asks(word)) return true;
    const bool may_take = word.starts_with("--") && word.find('=') == std::string::npos && i + 1 < argc;
    if (may_take && takes(table, table.find(name_in(word)), argv[i + 1])) ++i;
  }
  return false;
}

Layer read_command_line(OptionTable table, int argc, const char* const* argv, Violations& violations) {
  Violations unreadable;
  Layer layer = command_line(table, argc, argv, unreadable);
  table.set(layer, unreadable);
  unreadable.throw_if_any();
  table.check(violations);
  return layer;
}

}  // namespace moeloom
