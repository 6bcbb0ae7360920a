// A template's source as tokens, with white space taken away as trim_blocks and lstrip_blocks say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeloom::jinja {

enum class TokenKind {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,
  kInteger,
  kFloat,
  kSign,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // a text's is without its escapes
  int line = 1;
};

/// What the source breaks, and in which line.
struct SyntaxError {
  std::string text;
  int line;
};

/// `source` is well-formed UTF-8. The last token is kEnd. Throws SyntaxError.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace moeloom::jinja
