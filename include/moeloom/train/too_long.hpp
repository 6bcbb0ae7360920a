// Examples (a conversation, a text) that do not fit into a row, a sequence of the batch.
#pragma once

namespace moeloom {

/// What becomes of an example that is longer than a row.
enum class TooLong {
  kCut,    // its beginning stays, as long as a row
  kSplit,  // it becomes pieces of a row each, and one for the rest; no piece sees another
  kDrop    // it is left out
};
inline constexpr TooLong kTooLongRules[] = {TooLong::kCut, TooLong::kSplit, TooLong::kDrop};
/// "cut", "split", "drop".
const char* name_of(TooLong rule);

}  // namespace moeloom
