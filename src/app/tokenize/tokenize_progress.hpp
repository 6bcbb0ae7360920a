// OUT.progress.json: what a tokenization that was interrupted has done.
#pragma once

#include "io/token_file_writer.hpp"
#include "moeloom/io/document.hpp"

#include <string>

#include "data/document_reader.hpp"

namespace moeloom {

struct TokenizeProgress {
  std::string key;  // of all that decides the output's bytes
  ReadPlace place;
  Index documents = 0;
  TokenFileWriter::Position position;

  Document to_document() const;
  /// Throws IoError for what to_document() did not make, and for counts that no file has; `origin` names
  /// where the document is from.
  static TokenizeProgress from(const Document& document, const std::string& origin);
};

}  // namespace moeloom
