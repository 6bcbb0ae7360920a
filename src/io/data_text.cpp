#include "io/data_text.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/json_value.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <zlib.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGzip = "\x1f\x8b";

struct Kind {
  std::string_view first;
  const char* name;
  const char* way;  // behind which the file's name stands
};
constexpr Kind kNumPy = {
    "\x93NUMPY", "NumPy",
    "python3 -c 'import numpy, sys; numpy.load(sys.argv[1]).astype(\"u4\").tofile(sys.argv[1] "
    "+ \".u32\")' "};
constexpr std::array<Kind, 8> kKinds = {
    {{"PAR1", "Parquet",
      "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[1] + "
      "\".jsonl\", orient=\"records\", lines=True)' "},
     {"ARROW1", "Arrow",
      "python3 -c 'import pandas, sys; pandas.read_feather(sys.argv[1]).to_json(sys.argv[1] + "
      "\".jsonl\", orient=\"records\", lines=True)' "},
     {"PK\x03\x04", "zip", "unzip "},
     {"\x28\xb5\x2f\xfd", "zstd", "zstd -d "},
     {"\xfd"
      "7zXZ",
      "xz", "xz -d "},
     {"BZh", "bzip2", "bzip2 -d "},
     {"SQLite format 3", "SQLite", "sqlite3 -json "},
     kNumPy}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::string_view kMarkOfUtf8 = "\xef\xbb\xbf";

std::string in_small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string_view without_blanks_before(std::string_view text) {
  if (text.starts_with(kMarkOfUtf8)) text.remove_prefix(kMarkOfUtf8.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

bool is_packed(const fs::path& file) {
  return in_small_letters(file.extension().string()) == ".gz";
}

/// {"key":
bool begins_as_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  text = without_blanks_before(text.substr(1));
  const std::size_t end = text.starts_with('"') ? text.find('"', 1) : std::string_view::npos;
  return end != std::string_view::npos && without_blanks_before(text.substr(end + 1)).starts_with(':');
}

bool only_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

[[noreturn]] void refuse(const fs::path& file, const std::string& kind, const std::string& way) {
  throw IoError(file.string() + ": " + kind + " is not read; convert it first: " + way);
}

[[noreturn]] void refuse_kind(const fs::path& file, const Kind& kind) {
  refuse(file, kind.name, kind.way + file.string());
}

std::string kind_of_table(const std::string& ending) {
  return ending == ".csv" ? "CSV" : ending == ".tsv" ? "TSV" : "PSV";
}

/// A line of shell that writes a table with a header as records.
std::string way_of_table(const fs::path& file) {
  const std::string ending = data_ending(file);
  const char* delimiter = ending == ".csv"   ? ""
                          : ending == ".tsv" ? ", delimiter=\"\\t\""
                                             : ", delimiter=\"|\"";
  return (is_packed(file) ? "gzip -dc < " : "cat ") + file.string() +
         " | python3 -c 'import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin" +
         delimiter + ")]' > " + file.string() + ".jsonl";
}

/// All members of a gzip file, one behind the other.
std::string unpacked(const fs::path& file, std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr uInt kMostIn = 1u << 30;
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw IoError(file.string() + ": zlib cannot begin");
  const struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } end{stream};
  std::string text;
  std::size_t given = 0, written = 0;
  for (;;) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + given));
      stream.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size() - given, kMostIn));
      given += stream.avail_in;
    }
    text.resize(written + kPiece);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + written);
    stream.avail_out = static_cast<uInt>(kPiece);
    const int status = inflate(&stream, Z_NO_FLUSH);
    written = text.size() - stream.avail_out;
    if (status == Z_STREAM_END) {
      if (only_zeros(bytes.subspan(given - stream.avail_in))) break;  // what a tape was filled up with
      if (inflateReset(&stream) == Z_OK) continue;
    }
    const bool is_short = stream.avail_in == 0 && given == bytes.size() && stream.avail_out > 0;
    if (status != Z_OK || is_short)
      throw IoError(
          file.string() + ": damaged gzip behind " + std::to_string(written) + " bytes of text" +
          (stream.msg == nullptr ? is_short ? ": it ends early" : "" : std::string(": ") + stream.msg));
  }
  text.resize(written);
  return text;
}

/// At most `most` bytes of what it holds, packed or not; none where it cannot be read.
std::string first_unpacked(const fs::path& file, std::size_t most) {
  std::string first = first_bytes(file, most);
  if (!first.starts_with(kGzip)) return first;
  const gzFile in = gzopen(file.c_str(), "rb");
  if (in == nullptr) return {};
  first.resize(most);
  first.resize(static_cast<std::size_t>(std::max(0, gzread(in, first.data(), static_cast<unsigned>(most)))));
  gzclose(in);
  return first;
}

}  // namespace

bool is_gzip(const fs::path& file) {
  return first_bytes(file, kGzip.size()) == kGzip;
}

void require_text(const fs::path& file, std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  for (const Kind& kind : kKinds)
    if (text.starts_with(kind.first)) refuse_kind(file, kind);
  const std::string ending = data_ending(file);
  if (ending == ".csv" || ending == ".tsv" || ending == ".psv")
    refuse(file, kind_of_table(ending), way_of_table(file));
  constexpr std::size_t kLooked = 4096;
  if (const std::size_t zero = text.substr(0, kLooked).find('\0'); zero != std::string_view::npos)
    throw IoError(file.string() + ": it has a zero at byte " + std::to_string(zero) +
                  ", so it is no text; token ids are read by a data format: u16, u32 or megatron");
}

void require_ids(const fs::path& file, std::span<const std::byte> bytes) {
  const std::string_view begin = text_of(bytes);
  if (begin.starts_with(kNumPy.first)) refuse_kind(file, kNumPy);
  if (is_packed(file) && begin.starts_with(kGzip))
    refuse(file, "gzip around token ids", "gzip -d " + file.string());
}

DataText::DataText(const fs::path& file) : file_(file) {
  if (text_of(file_.bytes()).starts_with(kGzip)) {
    unpacked_ = unpacked(file, file_.bytes());
    file_ = MappedFile();
  }
  require_text(file, std::as_bytes(std::span(text())));
}

std::string_view DataText::text() const {
  return unpacked_.empty() ? text_of(file_.bytes()) : std::string_view(unpacked_);
}

bool is_json_array(std::string_view text) {
  return without_blanks_before(text).starts_with('[');
}

bool begins_as_json(const fs::path& file) {
  constexpr std::size_t kMost = std::size_t{1} << 16;
  const std::string first = first_unpacked(file, kMost);
  const std::string_view text = without_blanks_before(first);
  if (text.starts_with('[')) return begins_as_object(without_blanks_before(text.substr(1)));
  if (!begins_as_object(text)) return false;
  const std::size_t end = text.find('\n');
  if (end == text.npos && first.size() == kMost) return true;  // a longer row
  try {
    return parse_json_value(text.substr(0, end), file.string()).object() != nullptr;
  } catch (const IoError&) {
    return false;
  }
}

std::string data_ending(fs::path file) {
  if (is_packed(file)) file = file.stem();
  return in_small_letters(file.extension().string());
}

std::vector<std::string_view> json_elements(std::string_view text, const std::string& origin) {
  constexpr std::string_view kBlank = " \t\r\n";
  if (!is_json_array(text)) throw IoError(origin + ": expected a JSON array");
  std::vector<std::string_view> elements;
  std::string open;  // what closes each that is open, the innermost last
  std::size_t begin = 0;
  const auto take = [&](std::size_t end) {
    const std::string_view element = text.substr(begin, end - begin);
    const std::size_t first = element.find_first_not_of(kBlank);
    if (first != std::string_view::npos)
      elements.push_back(element.substr(first));
    else if (text[end] == ',' || !elements.empty())
      throw IoError(origin + ": expected an element of the JSON array before byte " + std::to_string(end));
    begin = end + 1;
  };
  for (std::size_t i = text.find('['); i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (open.empty()) begin = i + 1;
      open.push_back(c == '[' ? ']' : '}');
    } else if (c == ']' || c == '}') {
      if (c != open.back())
        throw IoError(origin + ": expected " + open.back() + " at byte " + std::to_string(i) + ", found " +
                      c);
      open.pop_back();
      if (!open.empty()) continue;
      take(i);
      const std::size_t more = text.find_first_not_of(kBlank, i + 1);
      if (more == std::string_view::npos) return elements;
      throw IoError(origin + ": expected one JSON array, found more behind byte " + std::to_string(i));
    } else if (c == ',' && open.size() == 1) {
      take(i);
    }
  }
  throw IoError(origin + ": the JSON array does not end");
}

}  // namespace moeloom
