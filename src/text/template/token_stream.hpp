// The tokens before a parser: what is next, what has to be.
#pragma once

#include <algorithm>

#include "lexer.hpp"

namespace moeloom::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& behind() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::kSign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::kName) && current().text == name; }
  bool take_sign(std::string_view sign) {
    if (!is_sign(sign)) return false;
    next();
    return true;
  }
  bool take_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }

  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) fail("expected '" + std::string(sign) + "', got " + shown());
  }
  void expect_name(std::string_view name) {
    if (!take_name(name)) fail("expected '" + std::string(name) + "', got " + shown());
  }
  std::string expect_any_name() {
    if (!is(TokenKind::kName)) fail("expected a name, got " + shown());
    return next().text;
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) fail(std::string("expected ") + what + ", got " + shown());
    next();
  }

  /// The current token in words.
  std::string shown() const {
    switch (current().kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kPrintEnd:
        return "'}}'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kText:
        return "a text";
      default:
        return "'" + current().text + "'";
    }
  }
  [[noreturn]] void fail(const std::string& text) const { throw SyntaxError{text, current().line}; }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace moeloom::jinja
