// Documents out of files of any size, in parts that fit into memory.
//
// A line of a .jsonl or .ndjson is a document, {"text": ...}; any other file is one.
#pragma once

#include "io/data_text.hpp"
#include "moeloom/base/index.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

struct DocumentPart {
  std::string bytes;   // of a file's text, or a line of JSON
  std::string origin;  // FILE:LINE of a line of JSON; empty for text
  bool begins_document = true;
};

/// Where the next part of a text ends: all of it up to 1 MiB. A longer one is cut at the begin of a line that
/// follows a line without a blank between them, else before a space between two letters: no usual
/// pre-tokenizer has a token across. A text that has neither in half a MiB is cut between two characters. A
/// tokenizer that puts something before a text (a Metaspace) puts it before each part.
std::size_t end_of_part(std::string_view text);

/// Files and, in the order of their names, all that folders hold, but what begins with a dot. Throws IoError
/// for what is not there.
std::vector<std::filesystem::path> files_under(const std::vector<std::string>& names);

/// Where a reader stands.
struct ReadPlace {
  Index file = 0;
  Index offset = 0;
  Index line = 0;  // lines read of the file
};

class DocumentReader {
 public:
  explicit DocumentReader(std::vector<std::filesystem::path> files, ReadPlace from = {});

  /// The next parts, of about so many bytes; none at the end. Throws IoError for a file that cannot be read
  /// or ends before the place.
  std::vector<DocumentPart> next(Index bytes);
  const ReadPlace& place() const { return place_; }
  /// Whether nothing is left of the document that the last part was of.
  bool ends_document() const;

 private:
  std::string_view rest();
  DocumentPart next_line(std::string_view rest);
  DocumentPart next_text(std::string_view rest);

  std::vector<std::filesystem::path> files_;
  ReadPlace place_;
  std::optional<DataText> current_;
  bool holds_rows_ = false;  // the present file
};

}  // namespace moeloom
