// Which tokens of a conversation a model learns.
#pragma once

namespace moeloom {

/// Of a conversation: what every turn of the assistant says, what its last turn says, every token. Of a plain
/// text: every token in each case.
enum class LearnRule { kAssistant, kLast, kAll };

}  // namespace moeloom
