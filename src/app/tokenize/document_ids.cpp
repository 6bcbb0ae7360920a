#include "tokenize/document_ids.hpp"

#include "text/conversation.hpp"

#include <algorithm>

namespace moeloom {
DocumentIds::DocumentIds(const ModelText& text, const TokenizeOptions& options, std::tm day)
    : text_(text),
      ignored_keys_(options.ignored_keys),
      conversations_(text, {.learn = LearnRule::kAll, .switches = options.switches}, options.ignored_keys,
                     day) {}

DocumentIds::Ids DocumentIds::of(const DocumentPart& part) const {
  if (part.origin.empty()) return {text_.tokenizer()->encode(part.bytes, false)};
  Conversation row = parse_conversation(part.bytes, part.origin, ignored_keys_);
  if (row.text) return {text_.tokenizer()->encode(*row.text, false), false, std::move(row.other_columns)};
  const bool weighs = std::ranges::any_of(row.learned, [](const auto& weight) { return weight.has_value(); });
  row.learned.clear();
  RecordReader::Record record = conversations_.read(row, part.origin);
  if (weighs) record.unread.emplace_back("weights of turns");
  return {std::move(record.example.ids), true, std::move(record.unread)};
}

}  // namespace moeloom
