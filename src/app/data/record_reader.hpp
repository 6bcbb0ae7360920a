// A line of data to an example: a document, or a conversation by the model's chat template.
#pragma once

#include "moeloom/io/example_file.hpp"
#include "moeloom/text/learned.hpp"

#include <string>
#include <string_view>

#include "text/model_text.hpp"

namespace moeloom {

/// What templates take for today: the day of the data, so that a run of tomorrow learns the same. Throws
/// IoError.
std::tm day_of(const std::filesystem::path& file);

class RecordReader {
 public:
  /// `text` must outlive it. now: what a template's strftime_now shows.
  RecordReader(const ModelText& text, LearnRule rule, std::tm now);

  struct Record {
    Example example;
    Index unplaced_turns = 0;  // of the assistant, which could not be found in the text and are not learned
  };
  /// Of a line of .jsonl. Any thread. Throws IoError, ConfigError, which name `origin`: "chats.jsonl:12".
  Record read(std::string_view line, const std::string& origin) const;
  /// Of a part of a document: every token is learned.
  Example document(std::string_view text) const;
  /// What the examples depend on beside the file: tokenizer, template and rule, a line each, "name: value".
  std::string key() const;

 private:
  const ModelText& text_;
  LearnOptions options_;
};

}  // namespace moeloom
