// A file of text, conversations or token ids as a file of tokenized examples: made once, found again by a
// key.
#pragma once

#include "io/example_file.hpp"
#include "moeloom/base/position_board.hpp"

#include <chrono>
#include <functional>
#include <set>

#include "data/record_reader.hpp"
#include "fields/data_source.hpp"

namespace moeloom {

struct PrepareSettings {
  std::filesystem::path cache = {};        // the folder where examples are kept
  std::optional<TokenFormat> format = {};  // none: guessed from the name
  Index sequence_length = 256;             // documents are cut into examples of so many tokens
  Index skip_bad = 0;                      // lines that may be left out
  Index threads = 0;                       // 0: as many as there are processors
  /// Told once, where another process makes the same file: which file, and who makes it.
  std::function<void(const std::string& file, const std::string& who)> on_wait = {};
  std::chrono::milliseconds patience = std::chrono::minutes(30);  // while the other's file does not grow
};

/// What was made of a file, or found made.
struct Prepared {
  std::filesystem::path examples;  // ExampleFile
  bool found = false;              // as an earlier run had made it
  Index bytes = 0;                 // of the file
  Index skipped = 0;               // lines
  Index turns = 0;                 // of the assistant, that are to be learned; 0 where it was found made
  Index unplaced = 0;              // of those, that were not found in the text
  std::vector<std::string> why_skipped = {};  // of the first ones
  std::set<std::string> unread = {};          // names of columns and of messages' members that nobody reads
  double seconds = 0;
  Index threads = 0;  // that it took
};

/// One process calls it; another that makes the same file is waited for as long as that file grows: a lock
/// whose holder has died is free. `board` is told of every part. Throws IoError, ConfigError with file and
/// line.
Prepared prepare_examples(const DataSource& source, const RecordReader& reader,
                          const PrepareSettings& settings, PositionBoard* board);

}  // namespace moeloom
