// Expressions by Jinja's grammar, which is nearly Python's: filters bind tighter than ~, ~ tighter than +.
#pragma once

#include "ast.hpp"
#include "token_stream.hpp"

namespace moeloom::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, Program& program) : tokens_(tokens), program_(program) {}

  ExpressionPtr expression(bool with_condition = true);
  /// One expression, or several with commas as a tuple.
  ExpressionPtr tuple(bool with_condition = true);
  /// `name(arguments)` behind an object and `|`; none: of a block's text.
  ExpressionPtr filter(ExpressionPtr object);
  ArgumentList arguments();

  /// Whether unknown filters and tests are errors only when they are reached.
  bool is_soft() const { return soft_; }
  void set_soft(bool soft) { soft_ = soft; }
  /// Behind each expression of a statement: throws SyntaxError for a filter or test that is not known.
  void settle();

 private:
  friend class Descent;
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr primary();
  ExpressionPtr constant_name();
  ExpressionPtr texts();
  ExpressionPtr number();
  ExpressionPtr parentheses();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters(ExpressionPtr object);
  ExpressionPtr test(ExpressionPtr object);
  ExpressionPtr dotted(ExpressionPtr object, int line);
  ExpressionPtr subscript(ExpressionPtr object, int line);
  ExpressionPtr subscript_part(ExpressionPtr& object, bool& is_slice);
  bool is_tuple_end() const;
  std::string dotted_name();

  TokenStream& tokens_;
  Program& program_;
  int depth_ = 0;
  bool soft_ = false;
  std::vector<SyntaxError> unknown_;
};

}  // namespace moeloom::jinja
