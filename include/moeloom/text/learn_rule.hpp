// Which tokens of a conversation a model learns.
#pragma once

namespace moeloom {

/// Of a conversation: what every assistant turn says, what the last one says, every token. Of a plain text:
/// every token.
enum class LearnRule { kAssistant, kLast, kAll };

}  // namespace moeloom
