#include "data/document_reader.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/json_value.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "fields/data_source.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDocumentPartBytes = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

bool is_blank_byte(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void add_files_of(const fs::path& folder, std::vector<fs::path>& files) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with('.')) found.push_back(entry.path());
  std::ranges::sort(found);
  for (const fs::path& path : found) {
    if (fs::is_directory(path) && !fs::is_symlink(path))
      add_files_of(path, files);
    else if (fs::is_regular_file(path))
      files.push_back(path);
  }
}

}  // namespace

std::size_t end_of_part(std::string_view text) {
  if (text.size() <= kDocumentPartBytes) return text.size();
  for (std::size_t at = kDocumentPartBytes; at > kDocumentPartBytes / 2; --at)
    if (text[at - 1] == '\n' && !is_blank_byte(text[at - 2]) && !is_blank_byte(text[at])) return at;
  for (std::size_t at = kDocumentPartBytes; at > kDocumentPartBytes / 2; --at)
    if (text[at] == ' ' && is_letter(text[at - 1]) && at + 1 < text.size() && is_letter(text[at + 1]))
      return at;
  std::size_t at = kDocumentPartBytes;
  while (at > kDocumentPartBytes - 4 && (static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::vector<fs::path> files_under(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    if (fs::is_directory(name)) {
      add_files_of(name, files);
      continue;
    }
    require_regular_file(name);
    files.emplace_back(name);
  }
  return files;
}

DocumentReader::DocumentReader(std::vector<fs::path> files, ReadPlace from)
    : files_(std::move(files)), place_(from) {}

/// Of the present file.
std::string_view DocumentReader::rest() {
  const fs::path& file = files_[static_cast<std::size_t>(place_.file)];
  if (!current_) {
    current_.emplace(file);
    holds_rows_ = holds_records(file, std::nullopt);
  }
  const std::string_view all = current_->text();
  if (holds_rows_ && is_json_array(all))
    throw IoError(file.string() +
                  ": a JSON array is not read here; write a record a line first: jq -c '.[]' " +
                  file.string());
  if (place_.offset > std::ssize(all))
    throw IoError(file.string() + ": its text has " + std::to_string(all.size()) +
                  " bytes; reading cannot go on at byte " + std::to_string(place_.offset) +
                  "; begin anew (`overwrite` true)");
  return all.substr(static_cast<std::size_t>(place_.offset));
}

bool DocumentReader::ends_document() const {
  return place_.offset == 0 || place_.line > 0 || place_.offset == std::ssize(current_->text());
}

DocumentPart DocumentReader::next_line(std::string_view rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  ++place_.line;
  place_.offset += static_cast<Index>(std::min(end + 1, rest.size()));
  DocumentPart part;
  part.origin = files_[static_cast<std::size_t>(place_.file)].string() + ":" + std::to_string(place_.line);
  if (end > kLongestLine)
    throw IoError(part.origin + ": a line of " + std::to_string(end) + " bytes; at most " +
                  std::to_string(kLongestLine));
  part.bytes = rest.substr(0, end);
  return part;
}

DocumentPart DocumentReader::next_text(std::string_view rest) {
  DocumentPart part;
  part.begins_document = place_.offset == 0;
  part.bytes = rest.substr(0, rest.size() > kDocumentPartBytes ? end_of_part(rest) : rest.size());
  place_.offset += std::ssize(part.bytes);
  return part;
}

std::vector<DocumentPart> DocumentReader::next(Index bytes) {
  std::vector<DocumentPart> parts;
  for (Index taken = 0; taken < bytes && place_.file < std::ssize(files_);) {
    const std::string_view left = rest();
    if (left.empty()) {
      current_.reset();
      place_ = {.file = place_.file + 1};
      continue;
    }
    const bool lines = holds_rows_;
    DocumentPart part = lines ? next_line(left) : next_text(left);
    taken += std::ssize(part.bytes);
    if (!std::ranges::all_of(part.bytes, is_blank_byte) || !lines) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace moeloom
