#include "data/prepare_examples.hpp"

#include "base/checksum.hpp"
#include "base/text.hpp"
#include "io/data_text.hpp"
#include "io/file_lock.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "data/document_reader.hpp"
#include "data/lock_holder.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostReasons = 5;
constexpr std::size_t kPartBytes = std::size_t{4} << 20;  // lines that are read and tokenized at a time
constexpr std::size_t kForgottenBytes = std::size_t{64} << 20;

/// While it lives, work is shared among so many threads; 0: as many as there are processors.
class WithThreads {
 public:
  explicit WithThreads(Index wanted) : before_(threads()) {
    const auto processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    set_threads(wanted > 0 ? static_cast<int>(wanted) : processors);
  }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;
  ~WithThreads() { set_threads(before_); }

 private:
  const int before_;
};

std::string_view bytes_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// The next part of `text`, of whole lines.
std::string_view lines_at(std::string_view text, std::size_t begin) {
  if (text.size() - begin <= kPartBytes) return text.substr(begin);
  const std::size_t end = text.find('\n', begin + kPartBytes);
  return text.substr(begin, end == std::string_view::npos ? text.size() - begin : end + 1 - begin);
}

/// What one file becomes, part by part in its order.
class Preparation {
 public:
  Preparation(const DataSource& source, const RecordReader& reader, const PrepareSettings& settings,
              PositionBoard* board, ExampleFileWriter& writer, Prepared& result)
      : source_(source),
        reader_(reader),
        settings_(settings),
        board_(board),
        writer_(writer),
        result_(result) {}

  void records(const DataText& file) {
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

  /// A document of any length is tokenized in parts that end with a line.
  void document(const DataText& file) {
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

  void tokens(const TokenSource& tokens) {
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

 private:
  struct Line {
    std::string_view text;
    std::string origin;
    RecordReader::Record record = {};
    std::string error = {};
  };

  /// An object over several lines would be an error for each of them.
  void require_rows_of_lines(std::string_view text) const {
    constexpr std::size_t kLooked = 256;
    if (trimmed(text.substr(0, std::min(text.find('\n'), kLooked))) != "{") return;
    const std::string file = source_.file.string();
    throw IoError(
        file + ": an object stands on several lines; a row a line is read, or one array of rows: jq -c . " +
        file);
  }

  /// Of a JSON array, as many at a time as a part of lines has bytes.
  void elements(std::string_view text) {
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

  std::vector<Line> lines_of(std::string_view part) {
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

  void add_records(std::vector<Line> lines) {
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

  void take(const Line& line) {
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

  static void append(const Example& more, Example& to) {
    to.ids.insert(to.ids.end(), more.ids.begin(), more.ids.end());
    to.learned.insert(to.learned.end(), more.learned.begin(), more.learned.end());
  }

  /// Examples of the sequence length; with `all` also a shorter last one. What is left stays in `rest`.
  void add_whole(Example& rest, bool all) {
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

  /// Of what lies before: a file of any size takes as much memory as its last stretch.
  void forget_pages(const DataText& file, std::size_t read) {
    if (read - forgotten_ < kForgottenBytes) return;
    file.forget();
    forgotten_ = read;
  }

  const DataSource& source_;
  const RecordReader& reader_;
  const PrepareSettings& settings_;
  PositionBoard* board_;
  ExampleFileWriter& writer_;
  Prepared& result_;
  Index line_number_ = 0;
  std::size_t forgotten_ = 0;
};

/// Of a file that may be too large to be read again at every start: its size, time, beginning and end.
std::string fingerprint_of(const fs::path& path, std::string_view text) {
  constexpr std::size_t kEnds = std::size_t{1} << 20;
  const std::string_view first = text.substr(0, kEnds),
                         last = text.substr(text.size() - std::min(kEnds, text.size()));
  return std::to_string(text.size()) + " bytes of " +
         std::to_string(fs::last_write_time(path).time_since_epoch().count()) + ", " +
         hex_text(checksum(std::as_bytes(std::span(first)))) + " to " +
         hex_text(checksum(std::as_bytes(std::span(last))));
}

/// Megatron's two files are read together.
std::string fingerprint_of_other(const fs::path& path, const std::optional<TokenFormat>& format) {
  if (holds_records(path, format) || token_format(path, format) != TokenFormat::kMegatron) return "";
  const fs::path other = fs::path(path).replace_extension(path.extension() == ".idx" ? ".bin" : ".idx");
  const MappedFile file(other);
  return ", beside " + fingerprint_of(other, bytes_of(file));
}

std::string key_of(const DataSource& source, const std::string& fingerprint, const RecordReader& reader,
                   const PrepareSettings& settings) {
  const bool records = holds_records(source.file, settings.format);
  const char* format = records ? "records" : name_of(token_format(source.file, settings.format));
  // A change of how text becomes ids raises the number.
  return "moeloom examples: 5\nfile: " + fs::absolute(source.file).string() + "\ncontents: " + fingerprint +
         "\n" + reader.key() + "\nformat: " + format +
         "\nsequence length: " + std::to_string(settings.sequence_length) +
         "\nskips: " + std::to_string(settings.skip_bad);
}

bool is_made(const fs::path& examples, const std::string& key) {
  if (!fs::exists(examples)) return false;
  try {
    const ExampleFile file(examples);
    if (file.key() != key) return false;
    file.check_content();
    return true;
  } catch (const IoError&) {
    return false;  // damaged: it is made again
  }
}

fs::path notes_of(const Prepared& made) {
  return fs::path(made.examples).replace_extension(".json");
}

/// What was left out is said of every run that trains on the file.
void write_notes(const Prepared& made) {
  Document notes;
  notes.set("skipped", made.skipped);
  notes.set("why_skipped", made.why_skipped);
  notes.set("unplaced", made.unplaced);
  notes.set("unread", std::vector<std::string>(made.unread.begin(), made.unread.end()));
  notes.write(notes_of(made));
}

Prepared with_notes(Prepared found) {
  if (!fs::exists(notes_of(found))) return found;
  const Document notes = Document::read(notes_of(found));
  found.skipped = notes.integer_or("skipped", 0);
  found.unplaced = notes.integer_or("unplaced", 0);
  if (notes.has("why_skipped")) found.why_skipped = notes.texts("why_skipped");
  if (notes.has("unread"))
    for (const std::string& name : notes.texts("unread")) found.unread.insert(name);
  return found;
}

/// Of the file that another process makes; none where there is none yet.
std::optional<std::uintmax_t> bytes_written(fs::path examples) {
  std::error_code missing;
  const std::uintmax_t bytes = fs::file_size(examples += ".partial", missing);
  return missing ? std::nullopt : std::optional(bytes);
}

/// Waits as long as another process holds it and writes.
FileLock wait_for(const fs::path& examples, const PrepareSettings& settings, PositionBoard* board) {
  using Clock = std::chrono::steady_clock;
  const fs::path path = fs::path(examples).replace_extension(".lock");
  const auto who = [&] { return described_holder(said_in(path)); };
  std::optional<std::uintmax_t> bytes;
  std::optional<Clock::time_point> grown;
  for (;;) {
    if (std::optional<FileLock> lock = FileLock::take(path)) {
      lock->say(holder_text());
      return std::move(*lock);
    }
    if (!grown && settings.on_wait) settings.on_wait(examples.string(), who());
    if (const auto now = bytes_written(examples); !grown || now != bytes) {
      bytes = now;
      grown = Clock::now();
    }
    if (Clock::now() - *grown > settings.patience)
      throw IoError(examples.string() + " is being made by " + who() + ", and has not grown for " +
                    std::to_string(std::chrono::ceil<std::chrono::seconds>(settings.patience).count()) +
                    " s; end that process, or give another `cache`");
    go_on(board);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

Prepared prepare_examples(const DataSource& source, const RecordReader& reader,
                          const PrepareSettings& settings, PositionBoard* board) {
  const auto start = std::chrono::steady_clock::now();
  const MappedFile file(source.file);
  const std::string_view bytes = bytes_of(file);
  const std::string key =
      key_of(source, fingerprint_of(source.file, bytes) + fingerprint_of_other(source.file, settings.format),
             reader, settings);
  fs::create_directories(settings.cache);
  Prepared result{
      .examples = settings.cache / (hex_text(checksum(std::as_bytes(std::span(key)))) + ".examples"),
      .bytes = static_cast<Index>(bytes.size())};
  const FileLock lock = wait_for(result.examples, settings, board);
  result.found = is_made(result.examples, key);
  if (result.found) return with_notes(std::move(result));
  const WithThreads with(settings.threads);
  result.threads = threads();
  ExampleFileWriter writer(result.examples, key);
  Preparation preparation(source, reader, settings, board, writer, result);
  const TokenFormat format = token_format(source.file, settings.format);
  if (holds_records(source.file, settings.format))
    preparation.records(DataText(source.file));
  else if (format == TokenFormat::kText)
    preparation.document(DataText(source.file));
  else
    preparation.tokens(TokenSource(source.file, format));
  if (writer.examples() == 0)
    throw IoError(
        source.file.string() + ": there is no example in it" +
        (result.skipped > 0 ? "; " + std::to_string(result.skipped) + " lines cannot be used" : ""));
  if (too_many_unplaced(result.unplaced, result.turns))
    throw ConfigError(
        {source.file.string() + ": " + std::to_string(result.unplaced) + " of " +
         std::to_string(result.turns) +
         " turns of the assistant are not found in what the template writes, and would not be learned; "
         "moeloom inspect `data` shows what is; `learn` last, `learn` all or a template with "
         "{% generation %} does without a search"});
  write_notes(result);
  writer.finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace moeloom
