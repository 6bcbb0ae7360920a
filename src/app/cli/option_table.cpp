#include "cli/option_table.hpp"

#include <algorithm>
#include <sstream>

#include "cli/config_file.hpp"
#include "cli/environment.hpp"
#include "cli/gone_options.hpp"
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

/// A boolean, or the word for the option's default.
bool is_boolean_text(const Option& option, const char* text) {
  return boolean_from_text(text).has_value() || text == option.get();
}

/// The option that a word names, with a value behind = or without; none for any other word.
const Option* option_of(const OptionTable& table, const std::string& word) {
  return word.starts_with("--") ? table.find(word.substr(2, word.find('=') - 2)) : nullptr;
}

std::vector<po::option> cut(const std::vector<Option>& options, const std::vector<std::string>& words) {
  namespace style = po::command_line_style;
  const po::options_description description = description_of(options);
  // No guessing: a script that says --log must not change its meaning when a longer name appears.
  return po::command_line_parser(words)
      .options(description)
      .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
      .allow_unregistered()
      .run()
      .options;
}

void forget_all(const OptionTable& table, Mistakes& mistakes) {
  for (const Option& option : table.options()) mistakes.unread.insert(option.name);
}

/// One word where there is a value: behind = it may look like an option.
void push_pair(const std::string& name, const std::string& value, std::vector<std::string>& words) {
  if (value.empty())
    words.insert(words.end(), {name, value});
  else
    words.push_back(name + "=" + value);
}

}  // namespace

void OptionTable::add(const std::string& name, const std::string& value_name, const std::string& help,
                      std::function<void(const std::string&)> set, std::function<std::string()> get) {
  options_.push_back({.group = group_,
                      .name = name,
                      .value_name = value_name,
                      .help = help,
                      .set = std::move(set),
                      .get = std::move(get)});
}

const Option* OptionTable::find(const std::string& name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name);
  return names;
}

std::string OptionTable::help() const {
  std::ostringstream text;
  text << description_of(options_);
  return text.str();
}

void OptionTable::note_unknown(const std::string& origin, const std::string& name, const std::string& dashes,
                               Mistakes& mistakes) const {
  const auto meant = closest(name, names());
  mistakes.violations.add(origin + "unknown option \"" + dashes + name + "\"" +
                          (meant ? "; did you mean " + dashes + *meant + "?" : "; --help lists all"));
  if (meant) mistakes.unread.insert(*meant);
}

/// Each option of the table with a value of its own, so that one without does not keep the others from being
/// read.
/// `--quiet` becomes `--quiet=true`, and `--quiet no` `--quiet=no`: a switch takes the next word only if that
/// says yes or no.
std::vector<std::string> OptionTable::with_whole_pairs(int argc, const char* const* argv,
                                                       Mistakes& mistakes) const {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const Option* option = option_of(*this, word);
    const bool has_next = i + 1 < argc;
    if (option == nullptr) {
      words.push_back(word);
    } else if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      push_pair(word.substr(0, equals), word.substr(equals + 1), words);
    } else if (option->is_boolean) {
      push_pair(word, has_next && is_boolean_text(*option, argv[i + 1]) ? argv[++i] : "true", words);
    } else if (has_next && option_of(*this, argv[i + 1]) == nullptr) {
      push_pair(word, argv[++i], words);
    } else {
      mistakes.violations.add(word + " needs a value: " + word + " " + option->value_name);
      mistakes.unread.insert(option->name);
    }
  }
  return words;
}

Layer OptionTable::command_line(int argc, const char* const* argv, Mistakes& mistakes) const {
  Layer layer;
  std::size_t strays = 0;
  bool after_unknown = false;
  try {
    for (const po::option& option : cut(options_, with_whole_pairs(argc, argv, mistakes))) {
      const bool is_stray = option.position_key >= 0;
      const bool has_place = is_stray && strays < positional_.size();
      const std::string name = has_place ? positional_[strays] : option.string_key;
      const std::string origin = is_stray ? name : "--" + name;
      if (option.unregistered)
        note_unknown("", name, "--", mistakes);
      else if (is_stray && (!has_place || layer.contains(name)) && !after_unknown)
        mistakes.violations.add("unexpected \"" + option.original_tokens.at(0) +
                                "\"; --help lists what is known");
      else if (const Option* known = find(name);
               known != nullptr && known->joins != 0 && layer.contains(name))
        layer[name].value += known->joins + option.value.at(0);
      else if (!is_stray || !after_unknown)
        layer[name] = {option.value.at(0), origin};
      if (is_stray && !after_unknown) ++strays;
      after_unknown = option.unregistered;
    }
  } catch (const po::error& error) {
    mistakes.violations.add(error.what());
    forget_all(*this, mistakes);
  }
  return layer;
}

Layer OptionTable::file(const std::filesystem::path& path, Mistakes& mistakes) const {
  return read_file(path, mistakes, nullptr);
}

Layer OptionTable::file(const std::filesystem::path& path, Mistakes& mistakes,
                        std::vector<std::string>& gone) const {
  return read_file(path, mistakes, &gone);
}

Layer OptionTable::read_file(const std::filesystem::path& path, Mistakes& mistakes,
                             std::vector<std::string>* gone) const {
  constexpr Index kMostNamed = 50;  // each is compared with every option's name
  Layer layer;
  Index unknown = 0;
  try {
    for (const ConfigLine& line : read_config_file(path)) {
      const std::string where = path.string() + ":" + std::to_string(line.line) + ": ";
      if (const auto became = gone != nullptr ? what_became_of(line.key, line.value) : std::nullopt) {
        if (!became->empty()) gone->push_back(*became);
        continue;
      }
      if (find(line.key) != nullptr && line.key != "config")
        layer[line.key] = {line.value, where + line.key};
      else if (++unknown <= kMostNamed)
        note_unknown(where, line.key, "", mistakes);
    }
    if (unknown > kMostNamed)
      mistakes.violations.add(path.string() + ": and " + std::to_string(unknown - kMostNamed) +
                              " more unknown options");
  } catch (const ConfigError& error) {
    mistakes.violations.add(error.violations());
    forget_all(*this, mistakes);
  } catch (const IoError& error) {
    mistakes.violations.add(error.what());
    forget_all(*this, mistakes);
  }
  return layer;
}

void OptionTable::set(const Layer& layer, Mistakes& mistakes) const {
  for (const auto& [name, given] : layer) {
    try {
      find(name)->set(given.value);
    } catch (const BadValue& bad) {
      mistakes.violations.add(given.origin + " = \"" + given.value + "\": " + bad.what());
      mistakes.unread.insert(name);
    }
  }
}

bool help_requested(int argc, const char* const* argv) {
  return std::any_of(argv + std::min(argc, 1), argv + argc,
                     [](const std::string word) { return word == "--help" || word == "-h"; });
}

Layer read_command_line(const OptionTable& table, int argc, const char* const* argv, Mistakes& mistakes) {
  Layer layer = table.command_line(argc, argv, mistakes);
  table.set(layer, mistakes);
  return layer;
}

}  // namespace moeloom
