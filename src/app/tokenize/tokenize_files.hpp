// Files of text into one file of token ids, on all threads and in bounded memory.
#pragma once

#include "cli/options.hpp"
#include "record/log.hpp"
#include "words/model_text.hpp"

namespace moeloom {

struct TokenizeCounts {
  Index documents = 0;
  Index tokens = 0;
  Index bytes = 0;          // of all files
  Index resumed_bytes = 0;  // that an earlier call had read
  double seconds = 0;
  std::vector<std::string> unread = {};  // names of columns and of messages' members that nobody reads
};

/// Of `options` what belongs to --out. A line of records is {"text": ...}, or a conversation by the template
/// of the folder options.model, each token of which is a document's like any other. What it has done is kept
/// beside the output every few seconds and where an error ends it; the same call then goes on there. Throws
/// ConfigError where the output is there, or belongs to other files, another tokenizer or other options, or
/// where its index is that of other tokens; IoError for files and lines that cannot be read.
TokenizeCounts tokenize_files(const TokenizeOptions& options, const ModelText& text, const Log& log);

}  // namespace moeloom
