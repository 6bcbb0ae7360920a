#include "open/data_marks.hpp"

#include "base/checksum.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "fields/option_groups.hpp"
#include "fields/option_values.hpp"

namespace moeloom {
namespace {

struct Mark {
  const char* key;
  const char* option;
};
constexpr std::array kOptions = {Mark{"learn", "learn"}, Mark{"too_long", "too-long"},
                                 Mark{"heldout", "heldout"}};

/// "0.7, 0.3"
std::string weights_text(const std::vector<DataSource>& sources) {
  std::vector<std::string> weights;
  for (const DataSource& source : sources)
    weights.push_back(source.weight ? value_text(*source.weight) : "none");
  return joined(weights);
}

/// A file's: its tokens, its name, and what it was made by.
struct SourceMark {
  std::string content;
  std::string name;
  std::map<std::string, std::string> made_by;  // but for what is compared as an option
};

std::string text_of(const SourceMark& mark) {
  std::string text = mark.content + "\n" + mark.name;
  for (const auto& [what, value] : mark.made_by) text += "\n" + what + ": " + value;
  return text;
}

SourceMark mark_of(const std::string& text) {
  SourceMark mark;
  std::istringstream lines(text);
  std::getline(lines, mark.content);
  std::getline(lines, mark.name);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t colon = line.find(": "); colon != std::string::npos)
      mark.made_by[line.substr(0, colon)] = line.substr(colon + 2);
  return mark;
}

SourceMark mark_of(const ExampleFile& file, const DataSource& source) {
  SourceMark mark = mark_of("\n\n" + file.key());
  for (const char* said : {"file", "learns", "sequence length", "skips"}) mark.made_by.erase(said);
  mark.content = hex_text(file.content_checksum());
  mark.name = source.file.filename().string();
  return mark;
}

std::vector<std::string> source_marks(const DataOptions& options, const RunData& data) {
  if (data.tokens) {  // the same bytes in another format are other tokens
    const std::filesystem::path& file = options.sources.front().file;
    const std::string contents = hex_text(data.tokens->ends_checksum());
    const std::string format = name_of(token_format(file, options.format));
    return {text_of(
        {contents + " " + format, file.filename().string(), {{"contents", contents}, {"format", format}}})};
  }
  std::vector<std::string> marks;
  for (std::size_t i = 0; i < data.examples.size(); ++i)
    marks.push_back(text_of(mark_of(*data.examples[i], options.sources[i])));
  return marks;
}

/// "contents, template"
std::string differing(const SourceMark& then, const SourceMark& now) {
  std::vector<std::string> names;
  for (const auto& [what, value] : now.made_by) {
    const auto before = then.made_by.find(what);
    if (before == then.made_by.end() || before->second != value) names.push_back(what);
  }
  for (const auto& [what, value] : then.made_by)
    if (!now.made_by.contains(what)) names.push_back(what);
  return joined(names);
}

void compare_sources(const std::vector<std::string>& then, const std::vector<std::string>& now,
                     std::vector<Event>& changes) {
  const auto names = [](const std::vector<std::string>& marks) {
    std::vector<std::string> all;
    for (const std::string& mark : marks) all.push_back(mark_of(mark).name);
    return joined(all);
  };
  if (then.size() != now.size()) {
    changes.push_back(Event().with("changed", "data").with("then", names(then)).with("now", names(now)));
    return;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const SourceMark before = mark_of(then[i]), after = mark_of(now[i]);
    if (before.content == after.content) continue;
    const std::string by = differing(before, after);
    if (by.empty()) continue;  // by an option, which is named
    Event event = Event().with("changed", "data").with("file", after.name).with("by", by);
    if (before.name != after.name) event.with("then", before.name);
    changes.push_back(event);
  }
}

}  // namespace

void add_data_marks(const DataOptions& options, const RunData& data, Document& settings) {
  if (!data.tokens) {
    RowOptions rows = options.rows;
    OptionTable table;
    add_row_options(table, rows);
    settings.set("learn", table.find("learn")->get());
    settings.set("too_long", name_of(options.too_long));
  }
  settings.set("heldout", value_text(options.heldout));
  settings.set("data_weights", weights_text(options.sources));
  settings.set("data_sources", source_marks(options, data));
}

std::vector<Event> data_changes(const Document& then, const Document& now) {
  std::vector<Event> changes;
  for (const auto& [key, option] : kOptions)
    if (then.has(key) && now.has(key) && then.text(key) != now.text(key))
      changes.push_back(Event()
                            .with("changed", option)
                            .with("then", then.text(key))
                            .with("now", now.text(key))
                            .with("keep", "`" + std::string(option) + "` " + then.text(key)));
  if (then.has("data_weights") && now.has("data_weights") &&
      then.text("data_weights") != now.text("data_weights"))
    changes.push_back(Event()
                          .with("changed", "weights of the data")
                          .with("then", then.text("data_weights"))
                          .with("now", now.text("data_weights")));
  if (then.has("data_sources") && now.has("data_sources"))
    compare_sources(then.texts("data_sources"), now.texts("data_sources"), changes);
  return changes;
}

}  // namespace moeloom
