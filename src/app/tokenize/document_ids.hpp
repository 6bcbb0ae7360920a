// The ids of a document's part: of a text, or of a conversation by the model's chat template.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "data/document_reader.hpp"
#include "data/record_reader.hpp"
#include "words/model_text.hpp"

namespace moeloom {

class DocumentIds {
 public:
  /// `text` must outlive it. day: what a template takes for today.
  DocumentIds(const ModelText& text, const TokenizeOptions& options, std::tm day);

  struct Ids {
    std::vector<std::uint32_t> ids;
    bool by_template = false;              // which puts around a conversation what belongs there
    std::vector<std::string> unread = {};  // columns and members that nobody reads
  };
  /// Any thread. Throws IoError and ConfigError, which name file and line.
  Ids of(const DocumentPart& part) const;
  /// What ids depend on beside the files.
  std::string key() const { return conversations_.key(); }

 private:
  const ModelText& text_;
  std::set<std::string> ignored_keys_;
  RecordReader conversations_;
};

}  // namespace moeloom
