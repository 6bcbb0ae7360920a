#include "data/preparation.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "data/document_reader.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kMostReasons = 5;
constexpr std::size_t kPartBytes = std::size_t{4} << 20;  // lines that are read and tokenized at a time
constexpr std::size_t kForgottenBytes = std::size_t{64} << 20;

/// The next part of `text`, of whole lines.
std::string_view lines_at(std::string_view text, std::size_t begin) {
  if (text.size() - begin <= kPartBytes) return text.substr(begin);
  const std::size_t end = text.find('\n', begin + kPartBytes);
  return text.substr(begin, end == std::string_view::npos ? text.size() - begin : end + 1 - begin);
}

void append(const Example& more, Example& to) {
  to.ids.insert(to.ids.end(), more.ids.begin(), more.ids.end());
  to.learned.insert(to.learned.end(), more.learned.begin(), more.learned.end());
}

}  // namespace

void Preparation::run() {
  const TokenFormat format = token_format(source_.file, settings_.format);
  if (holds_records(source_.file, settings_.format))
    records(DataText(source_.file));
  else if (format == TokenFormat::kText)
    document(DataText(source_.file));
  else
    tokens(TokenSource(source_.file, format));
}

void Preparation::records(const DataText& file) {
  const std::string_view text = file.text();
  if (is_json_array(text)) return elements(text);
  require_rows_of_lines(text);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view part = lines_at(text, begin);
    add_records(lines_of(part));
    begin += part.size();
    forget_pages(file, begin);
    go_on(board_);
  }
}

void Preparation::document(const DataText& file) {
  const std::string_view text = file.text();
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin < text.size(); begin += parts.back().size())
    parts.push_back(text.substr(begin, end_of_part(text.substr(begin))));
  Example rest;
  for (std::size_t first = 0; first < parts.size(); first += at(threads())) {
    const std::size_t count = std::min(parts.size() - first, at(threads()));
    std::vector<Example> examples(count);
    parallel_for(static_cast<Index>(count),
                 [&](Index i) { examples[at(i)] = reader_.document(parts[first + at(i)]); });
    for (const Example& each : examples) append(each, rest);
    add_whole(rest, false);
    forget_pages(file, static_cast<std::size_t>(parts[first + count - 1].end() - text.begin()));
    go_on(board_);
  }
  add_whole(rest, true);
}

void Preparation::tokens(const TokenSource& tokens) {
  tokens.largest_id();  // which names a file that holds others than ids
  std::vector<std::int32_t> ids;
  for (Index begin = 0; begin < tokens.size(); begin += settings_.sequence_length) {
    ids.resize(at(std::min(settings_.sequence_length, tokens.size() - begin)));
    tokens.read(begin, std::ssize(ids), ids.data());
    writer_.add(Example{{ids.begin(), ids.end()}, std::vector<std::uint8_t>(ids.size(), 1)});
    if (begin / settings_.sequence_length % 4096 != 0) continue;
    tokens.forget();
    go_on(board_);
  }
}

void Preparation::require_rows_of_lines(std::string_view text) const {
  constexpr std::size_t kLooked = 256;
  if (trimmed(text.substr(0, std::min(text.find('\n'), kLooked))) != "{") return;
  const std::string file = source_.file.string();
  throw IoError(file +
                ": an object stands on several lines; a row a line is read, or one array of rows: jq -c . " +
                file);
}

void Preparation::elements(std::string_view text) {
  const std::string name = source_.file.string();
  std::vector<Line> part;
  std::size_t bytes = 0, number = 0;
  for (const std::string_view element : json_elements(text, name)) {
    part.push_back({element, name + "[" + std::to_string(number++) + "]"});
    if ((bytes += element.size()) < kPartBytes) continue;
    add_records(std::move(part));
    part.clear(), bytes = 0;
    go_on(board_);
  }
  add_records(std::move(part));
}

std::vector<Preparation::Line> Preparation::lines_of(std::string_view part) {
  std::vector<Line> lines;
  for (std::size_t begin = 0; begin < part.size();) {
    const std::size_t end = std::min(part.find('\n', begin), part.size());
    std::string_view line = part.substr(begin, end - begin);
    ++line_number_;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      lines.push_back({line, source_.file.string() + ":" + std::to_string(line_number_)});
    begin = end + 1;
  }
  return lines;
}

void Preparation::add_records(std::vector<Line> lines) {
  parallel_for(std::ssize(lines), [&](Index i) {
    Line& line = lines[at(i)];
    try {
      line.record = reader_.read(line.text, line.origin);
    } catch (const Error& error) {
      line.error = error.what();
    }
  });
  for (const Line& line : lines) take(line);
}

void Preparation::take(const Line& line) {
  if (line.error.empty() && !line.record.example.ids.empty()) {
    result_.turns += line.record.turns;
    result_.unplaced += line.record.unplaced_turns;
    result_.unread.insert(line.record.unread.begin(), line.record.unread.end());
    return writer_.add(line.record.example);
  }
  const std::string why = !line.error.empty() ? line.error : line.origin + ": it has no token";
  if (++result_.skipped > settings_.skip_bad)
    throw IoError(why + (settings_.skip_bad == 0 ? ""
                                                 : "; this is the " + std::to_string(result_.skipped) +
                                                       "th line that cannot be used"));
  if (result_.why_skipped.size() < kMostReasons) result_.why_skipped.push_back(why);
}

void Preparation::add_whole(Example& rest, bool all) {
  const std::size_t length = at(settings_.sequence_length);
  std::size_t begin = 0;
  while (rest.ids.size() - begin >= length || (all && begin < rest.ids.size())) {
    const std::size_t count = std::min(length, rest.ids.size() - begin);
    writer_.add(ExampleView{std::span(rest.ids).subspan(begin, count),
                            std::span(rest.learned).subspan(begin, count)});
    begin += count;
  }
  rest.ids.erase(rest.ids.begin(), rest.ids.begin() + static_cast<std::ptrdiff_t>(begin));
  rest.learned.erase(rest.learned.begin(), rest.learned.begin() + static_cast<std::ptrdiff_t>(begin));
}

void Preparation::forget_pages(const DataText& file, std::size_t read) {
  if (read - forgotten_ < kForgottenBytes) return;
  file.forget();
  forgotten_ = read;
}

}  // namespace moeloom
