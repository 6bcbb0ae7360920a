#include "tokenize/tokenize_files.hpp"

#include "base/checksum.hpp"
#include "base/text.hpp"
#include "io/text_file.hpp"
#include "io/token_file_writer.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/document.hpp"

#include <chrono>
#include <limits>
#include <set>

#include "data/document_reader.hpp"
#include "data/record_reader.hpp"
#include "tokenize/document_ids.hpp"
#include "tokenize/tokenize_paths.hpp"
#include "tokenize/tokenize_progress.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr Index kBatchBytes = Index{4} << 20;
constexpr std::chrono::seconds kBetweenReports{2};
constexpr std::chrono::seconds kBetweenSaves{10};

Index bytes_of_files(const std::vector<fs::path>& files) {
  Index bytes = 0;
  for (const fs::path& file : files) bytes += static_cast<Index>(fs::file_size(file));
  return bytes;
}

/// Of all that decides the output's bytes, but what files hold beyond their sizes.
std::string tokenize_key(const TokenizeOptions& options, const std::vector<fs::path>& files,
                         const DocumentIds& ids) {
  std::string text = ids.key();
  for (const fs::path& file : files)
    text += '\0' + file.string() + '\0' + std::to_string(fs::file_size(file));
  text += options.raw ? "raw" : "megatron";
  text += options.special ? "special" : "plain";
  text += '\0' + options.end_token;
  if (!files.empty()) text += std::to_string(fs::last_write_time(files.front()).time_since_epoch().count());
  return hex_text(checksum(std::as_bytes(std::span(text))));
}

/// What the post-processor puts around a text.
struct SpecialTokens {
  std::vector<std::uint32_t> before, after;
};

SpecialTokens special_tokens_of(const Tokenizer& tokenizer) {
  const std::vector<std::uint32_t> plain = tokenizer.encode("a", false), whole = tokenizer.encode("a", true);
  const auto found = std::ranges::search(whole, plain);
  return {{whole.begin(), found.begin()}, {found.end(), whole.end()}};
}

class TokenizeRun {
 public:
  TokenizeRun(const TokenizeOptions& options, const ModelText& text, const Log& log)
      : options_(options),
        tokenizer_(*text.tokenizer()),
        log_(log),
        files_(input_files(options)),
        ids_(text, options, files_.empty() ? std::tm{} : day_of(files_.front())),
        key_(tokenize_key(options, files_, ids_)),
        state_file_(options.out.string() + ".progress.json") {
    counts_.bytes = bytes_of_files(files_);
    if (options.special) around_ = special_tokens_of(tokenizer_);
    if (options.end_token.empty()) return;
    end_ = tokenizer_.id_of(options.end_token);
    if (!end_)
      throw ConfigError({"the tokenizer has no token \"" + options.end_token + "\" to end documents with"});
  }

  TokenizeCounts run() {
    const Resumed resumed = resume();
    DocumentReader reader(files_, resumed.place);
    const bool narrow = tokenizer_.vocabulary_size() <= std::numeric_limits<std::uint16_t>::max() + 1U;
    TokenFileWriter writer(options_.out, options_.raw ? TokenLayout::kRaw : TokenLayout::kMegatron,
                           narrow && !options_.raw ? 2 : 4, resumed.position);
    try {
      write_all(reader, writer);
    } catch (...) {
      if (!adds_) save(done_, writer.flush());
      throw;
    }
    writer.finish();
    fs::remove(state_file_);
    counts_.unread = {unread_.begin(), unread_.end()};
    counts_.seconds = seconds_since(begin_);
    return counts_;
  }

 private:
  struct Resumed {
    ReadPlace place;
    TokenFileWriter::Position position;
  };

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Resumed resume() {
    if (options_.overwrite) fs::remove(state_file_);
    if (!fs::exists(state_file_)) return {};
    const TokenizeProgress progress =
        TokenizeProgress::from(Document::read(state_file_), state_file_.string());
    const Index behind_last = std::ssize(files_);
    const bool is_place = progress.place.file < behind_last ||
                          (progress.place.file == behind_last && progress.place.offset == 0);
    if (progress.key != key_ || !is_place)
      throw ConfigError({state_file_.string() +
                         " is of another run: of other files, another tokenizer or other options; "
                         "remove it, or give --overwrite true"});
    done_ = progress.place;
    counts_.documents = progress.documents;
    counts_.tokens = progress.position.tokens;
    counts_.resumed_bytes = bytes_before(done_);
    log_.info(Event().with("resumed", state_file_.string()).with("bytes", counts_.resumed_bytes));
    return {done_, progress.position};
  }

  /// Of a packed file at most its size: how much of it an offset in its text is nobody knows.
  Index bytes_before(const ReadPlace& place) const {
    const Index before = bytes_of_files({files_.begin(), files_.begin() + place.file});
    if (place.file == std::ssize(files_)) return before;
    return before + std::min(place.offset, bytes_of_files({files_[static_cast<std::size_t>(place.file)]}));
  }

  void save(const ReadPlace& place, const TokenFileWriter::Position& position) const {
    TokenizeProgress{key_, place, counts_.documents, position}.to_document().write(state_file_);
  }

  void write_all(DocumentReader& reader, TokenFileWriter& writer) {
    std::chrono::steady_clock::time_point reported = begin_, saved = begin_;
    for (;;) {
      const std::vector<DocumentPart> parts = reader.next(kBatchBytes);
      if (parts.empty() && reader.place().file == std::ssize(files_)) break;
      write(parts, reader, writer);
      done_ = reader.place();
      if (std::chrono::steady_clock::now() - saved >= kBetweenSaves) {
        save(done_, writer.flush());
        saved = std::chrono::steady_clock::now();
      }
      if (std::chrono::steady_clock::now() - reported < kBetweenReports) continue;
      report();
      reported = std::chrono::steady_clock::now();
    }
  }

  /// All parts are encoded before the first is written: a line that cannot be read leaves the batch undone.
  void write(const std::vector<DocumentPart>& parts, const DocumentReader& reader, TokenFileWriter& writer) {
    std::vector<DocumentIds::Ids> documents(parts.size());
    parallel_for(std::ssize(parts), [&](Index i) {
      const auto at = static_cast<std::size_t>(i);
      documents[at] = ids_.of(parts[at]);
    });
    adds_ = true;  // of a batch that was added in part, the state before it holds
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool ends = i + 1 < parts.size() ? parts[i + 1].begins_document : reader.ends_document();
      auto& [ids, by_template, unread] = documents[i];
      if (parts[i].begins_document && !by_template)
        ids.insert(ids.begin(), around_.before.begin(), around_.before.end());
      if (ends && !by_template) ids.insert(ids.end(), around_.after.begin(), around_.after.end());
      const bool has_end = by_template && !ids.empty() && ids.back() == end_;
      if (end_ && ends && !has_end) ids.push_back(*end_);
      writer.add(ids, parts[i].begins_document);
      unread_.insert(unread.begin(), unread.end());
      counts_.documents += parts[i].begins_document ? 1 : 0;
      counts_.tokens += std::ssize(ids);
    }
    adds_ = false;
  }

  void report() const {
    const Index read = bytes_before(done_);
    const double speed = static_cast<double>(read - counts_.resumed_bytes) / seconds_since(begin_);
    log_.info(Event()
                  .with("read", bytes_text(static_cast<double>(read)))
                  .with("of", bytes_text(static_cast<double>(counts_.bytes)))
                  .with("tokens", counts_.tokens)
                  .with("mb/s", speed / 1e6));
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  const Log& log_;
  SpecialTokens around_;
  bool adds_ = false;
  std::vector<fs::path> files_;
  DocumentIds ids_;
  std::set<std::string> unread_;
  std::string key_;
  fs::path state_file_;
  std::optional<std::uint32_t> end_;
  ReadPlace done_;
  TokenizeCounts counts_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Raw ids without .bin remove an index that NAME.bin has, too.
void require_own_index(const TokenizeOptions& options) {
  const fs::path &out = options.out, index = megatron_index_of(out);
  if (!fs::exists(index)) return;
  const fs::path tokens = fs::path(index).replace_extension(".bin");
  if (tokens != out && fs::exists(tokens))
    throw ConfigError({index.string() + " would be removed, and is that of " + tokens.string() +
                       ", which is there; choose another name for --out"});
  if (!options.overwrite && !fs::exists(out) && !fs::exists(out.string() + ".partial"))
    throw ConfigError({index.string() + " is there, and not the tokens whose index it would be, " +
                       out.string() + "; remove it, or give --overwrite true"});
}

}  // namespace

TokenizeCounts tokenize_files(const TokenizeOptions& options, const ModelText& text, const Log& log) {
  require_place_for_tokens(options.out);
  const OutputLock lock = tokens_lock(options.out);
  if (!options.overwrite && fs::exists(options.out))
    throw ConfigError({options.out.string() + " is there; remove it, or give --overwrite true"});
  require_own_index(options);
  return TokenizeRun(options, text, log).run();
}

}  // namespace moeloom
