// A line of data to an example: a document, or a conversation by the model's chat template.
#pragma once

#include "io/example_file.hpp"
#include "moeloom/run/options.hpp"
#include "text/learned.hpp"

#include <string>
#include <string_view>

#include "words/model_text.hpp"

namespace moeloom {

/// What templates take for today: the day of the data, so that a run of tomorrow learns the same. Throws
/// IoError.
std::tm day_of(const std::filesystem::path& file);

/// Of more turns than one in a hundred it is no accident of a row that they are not found, but the template's
/// way.
inline bool too_many_unplaced(Index unplaced, Index turns) {
  return 100 * unplaced > turns;
}

class RecordReader {
 public:
  /// `text` must outlive it. ignored_keys: of rows and messages. now: what a template's strftime_now shows.
  RecordReader(const ModelText& text, RowOptions rows, std::set<std::string> ignored_keys, std::tm now);

  struct Record {
    Example example;
    Index turns = 0;           // of the assistant, that are to be learned
    Index unplaced_turns = 0;  // of those, which could not be found in the text and are not learned
    std::vector<std::string> unread = {};  // names of columns and of messages' members that nobody reads
  };
  /// Of a line of .jsonl. Any thread. Throws IoError, ConfigError, which name `origin`: "chats.jsonl:12".
  Record read(std::string_view line, const std::string& origin) const;
  Record read(const Conversation& conversation, const std::string& origin) const;
  /// Of a part of a document: every token is learned.
  Example document(std::string_view text) const;
  /// What the examples depend on beside the file: tokenizer, template and rule, a line each, "name: value".
  std::string key() const;

 private:
  const ModelText& text_;
  RowOptions rows_;
  std::set<std::string> ignored_keys_;
  LearnOptions options_;
};

}  // namespace moeloom
