#include "data/prepare_examples.hpp"

#include "base/checksum.hpp"
#include "comm/control_groups.hpp"
#include "io/data_text.hpp"
#include "io/file_lock.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "data/lock_holder.hpp"
#include "data/preparation.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// While it lives, work is shared among so many threads; 0: as many as there are processors.
class WithThreads {
 public:
  explicit WithThreads(Index wanted) : before_(threads()) {
    set_threads(wanted > 0 ? static_cast<int>(wanted) : usable_processors());
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

void require_useful(const fs::path& file, Index examples, const Prepared& made) {
  if (examples == 0)
    throw IoError(file.string() + ": there is no example in it" +
                  (made.skipped > 0 ? "; " + std::to_string(made.skipped) + " lines cannot be used" : ""));
  if (too_many_unplaced(made.unplaced, made.turns))
    throw ConfigError(
        {file.string() + ": " + std::to_string(made.unplaced) + " of " + std::to_string(made.turns) +
         " turns of the assistant are not found in what the template writes, and would not be learned; "
         "moeloom inspect `data` shows what is; `learn` last, `learn` all or a template with "
         "{% generation %} does without a search"});
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
  Preparation(source, reader, settings, board, writer, result).run();
  require_useful(source.file, writer.examples(), result);
  write_notes(result);
  writer.finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace moeloom
