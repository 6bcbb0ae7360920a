#include "run/tokenize/document_ids.hpp"

#include "moeloom/text/conversation.hpp"

namespace moeloom {

DocumentIds::DocumentIds(const ModelText& text, const TokenizeOptions& options, std::tm day)
    : text_(text),
      ignored_keys_(options.ignored_keys),
      conversations_(text, {.learn = LearnRule::kAll, .switches = options.switches}, options.ignored_keys,
                     day) {}

DocumentIds::Ids DocumentIds::of(const DocumentPart& part) const {
  if (part.origin.empty()) return {text_.tokenizer()->encode(part.bytes, false)};
  Conversation line = parse_conversation(part.bytes, part.origin, ignored_keys_);
  if (line.text && !line.prompt)
    return {text_.tokenizer()->encode(*line.text, false), false, std::move(line.other_columns)};
  RecordReader::Record record = conversations_.read(part.bytes, part.origin);
  return {std::move(record.example.ids), true, std::move(record.unread)};
}

}  // namespace moeloom
