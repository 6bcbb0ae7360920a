#include "expression_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace moeloom::jinja {
namespace {

constexpr int kMostNesting = 100;  // of brackets and signs
constexpr int kMostDepth = 500;    // of the tree: a chain of operators is deep too

int depth_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

int depth_of(const ArgumentList& list) {
  int depth = std::max(depth_of(list.all_positional), depth_of(list.all_named));
  for (const auto& each : list.positional) depth = std::max(depth, depth_of(each));
  for (const auto& [name, each] : list.named) depth = std::max(depth, depth_of(each));
  return depth;
}

int depth_of(const std::vector<ExpressionPtr>& parts) {
  int depth = 0;
  for (const auto& each : parts) depth = std::max(depth, depth_of(each));
  return depth;
}

template <typename Node>
ExpressionPtr made(int line, int below, Node node) {
  if (below >= kMostDepth)
    throw SyntaxError{"an expression is deeper than " + std::to_string(kMostDepth), line};
  return std::make_unique<const Expression>(Expression{line, below + 1, std::move(node)});
}

ExpressionPtr constant(int line, Value value) {
  return made(line, 0, Constant{std::move(value)});
}

ExpressionPtr binary(int line, Operator op, ExpressionPtr left, ExpressionPtr right) {
  const int below = std::max(depth_of(left), depth_of(right));
  return made(line, below, Binary{op, std::move(left), std::move(right)});
}

Integer parsed_integer(const Token& token) {
  const std::string& text = token.text;
  const char mark = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : 0;
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  Integer number = 0;
  for (const char c : std::string_view(text).substr(base == 10 ? 0 : 2)) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(number, Integer{base}, &number) ||
        __builtin_add_overflow(number, Integer{digit}, &number))
      throw SyntaxError{"an integer does not fit into 128 bits", token.line};
  }
  return number;
}

}  // namespace

/// Counts how deep the parser has called itself.
class Descent {
 public:
  explicit Descent(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMostNesting) {
      --parser_.depth_;
      parser_.tokens_.fail("expressions nest deeper than " + std::to_string(kMostNesting));
    }
  }
  ~Descent() { --parser_.depth_; }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;

 private:
  ExpressionParser& parser_;
};

void ExpressionParser::settle() {
  if (!soft_ && !unknown_.empty()) throw SyntaxError(unknown_.front());
  unknown_.clear();
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Descent descent(*this);
  const std::size_t unknown = unknown_.size();
  ExpressionPtr yes = either();
  while (with_condition && tokens_.is_name("if")) {
    const int line = tokens_.next().line;
    ExpressionPtr test = either();
    ExpressionPtr no = tokens_.take_name("else") ? expression() : nullptr;
    unknown_.erase(unknown_.begin() + static_cast<std::ptrdiff_t>(unknown), unknown_.end());
    const int below = std::max({depth_of(test), depth_of(yes), depth_of(no)});
    yes = made(line, below, Conditional{std::move(test), std::move(yes), std::move(no)});
  }
  return yes;
}

bool ExpressionParser::is_tuple_end() const {
  return tokens_.is(TokenKind::kPrintEnd) || tokens_.is(TokenKind::kBlockEnd) || tokens_.is_sign(")") ||
         tokens_.is_name("recursive") || tokens_.is(TokenKind::kEnd);
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  const int line = tokens_.current().line;
  ExpressionPtr first = expression(with_condition);
  if (!tokens_.is_sign(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (tokens_.take_sign(",") && !is_tuple_end()) items.push_back(expression(with_condition));
  const int below = depth_of(items);
  return made(line, below, Group{Sequence::Kind::kTuple, std::move(items)});
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (tokens_.is_name("or")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = both();
    const int below = std::max(depth_of(left), depth_of(right));
    left = made(line, below, Logic{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (tokens_.is_name("and")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = negation();
    const int below = std::max(depth_of(left), depth_of(right));
    left = made(line, below, Logic{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Descent descent(*this);
  const int line = tokens_.next().line;
  ExpressionPtr operand = negation();
  const int below = depth_of(operand);
  return made(line, below, Unary{Unary::Kind::kNot, std::move(operand)});
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kOps[] = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual}};
  const int line = tokens_.current().line;
  ExpressionPtr first = sum();
  std::vector<std::pair<Comparison, ExpressionPtr>> others;
  int below = depth_of(first);
  while (true) {
    const auto* const op =
        std::ranges::find_if(kOps, [&](const auto& each) { return tokens_.is_sign(each.first); });
    Comparison comparison = Comparison::kIn;
    if (op != std::end(kOps)) {
      comparison = op->second;
    } else if (tokens_.is_name("not") && tokens_.behind().kind == TokenKind::kName &&
               tokens_.behind().text == "in") {
      tokens_.next();
      comparison = Comparison::kNotIn;
    } else if (!tokens_.is_name("in")) {
      break;
    }
    tokens_.next();
    others.emplace_back(comparison, sum());
    below = std::max(below, depth_of(others.back().second));
  }
  return others.empty() ? std::move(first)
                        : made(line, below, Comparing{std::move(first), std::move(others)});
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (tokens_.is_sign("+") || tokens_.is_sign("-")) {
    const Token sign = tokens_.next();
    left = binary(sign.line, sign.text == "+" ? Operator::kAdd : Operator::kSubtract, std::move(left),
                  concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.current().line;
  ExpressionPtr first = product();
  if (!tokens_.is_sign("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (tokens_.take_sign("~")) parts.push_back(product());
  const int below = depth_of(parts);
  return made(line, below, Concatenation{std::move(parts)});
}

ExpressionPtr ExpressionParser::product() {
  static constexpr std::pair<std::string_view, Operator> kOps[] = {{"*", Operator::kMultiply},
                                                                   {"/", Operator::kDivide},
                                                                   {"//", Operator::kFloorDivide},
                                                                   {"%", Operator::kModulo}};
  ExpressionPtr left = power();
  while (true) {
    const auto* const op =
        std::ranges::find_if(kOps, [&](const auto& each) { return tokens_.is_sign(each.first); });
    if (op == std::end(kOps)) return left;
    const int line = tokens_.next().line;
    left = binary(line, op->second, std::move(left), power());
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (tokens_.is_sign("**")) {
    const int line = tokens_.next().line;
    left = binary(line, Operator::kPower, std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  const Descent descent(*this);
  ExpressionPtr result;
  if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
    const Token sign = tokens_.next();
    ExpressionPtr operand = unary(false);
    const int below = depth_of(operand);
    const auto kind = sign.text == "-" ? Unary::Kind::kNegative : Unary::Kind::kPositive;
    result = made(sign.line, below, Unary{kind, std::move(operand)});
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return with_filter ? filters(std::move(result)) : std::move(result);
}

ExpressionPtr ExpressionParser::primary() {
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return constant_name();
    case TokenKind::kText:
      return texts();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return number();
    default:
      break;
  }
  if (tokens_.is_sign("(")) return parentheses();
  if (tokens_.is_sign("[")) return list();
  if (tokens_.is_sign("{")) return dict();
  tokens_.fail("expected an expression, got " + tokens_.shown());
}

ExpressionPtr ExpressionParser::constant_name() {
  const Token token = tokens_.next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return constant(token.line, true);
  if (name == "false" || name == "False") return constant(token.line, false);
  if (name == "none" || name == "None") return constant(token.line, kNone);
  return made(token.line, 0, Name{program_.id_of(name)});
}

ExpressionPtr ExpressionParser::texts() {
  const Token token = tokens_.next();
  std::string text = token.text;
  while (tokens_.is(TokenKind::kText)) text += tokens_.next().text;
  return constant(token.line, text_value(std::move(text)));
}

ExpressionPtr ExpressionParser::number() {
  const Token token = tokens_.next();
  if (token.kind == TokenKind::kInteger) return constant(token.line, integer_value(parsed_integer(token)));
  return constant(token.line, std::strtod(token.text.c_str(), nullptr));
}

ExpressionPtr ExpressionParser::parentheses() {
  const int line = tokens_.next().line;
  if (tokens_.take_sign(")")) return made(line, 0, Group{Sequence::Kind::kTuple, {}});
  ExpressionPtr inner = tuple();
  tokens_.expect_sign(")");
  return inner;
}

ExpressionPtr ExpressionParser::list() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_sign("]")) {
    if (!items.empty()) tokens_.expect_sign(",");
    if (tokens_.is_sign("]")) break;
    items.push_back(expression());
  }
  tokens_.expect_sign("]");
  const int below = depth_of(items);
  return made(line, below, Group{Sequence::Kind::kList, std::move(items)});
}

ExpressionPtr ExpressionParser::dict() {
  const int line = tokens_.next().line;
  DictOf dict;
  int below = 0;
  while (!tokens_.is_sign("}")) {
    if (!dict.members.empty()) tokens_.expect_sign(",");
    if (tokens_.is_sign("}")) break;
    ExpressionPtr key = expression();
    tokens_.expect_sign(":");
    ExpressionPtr value = expression();
    below = std::max({below, depth_of(key), depth_of(value)});
    dict.members.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_sign("}");
  return made(line, below, std::move(dict));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    const int line = tokens_.current().line;
    if (tokens_.take_sign(".")) {
      object = dotted(std::move(object), line);
    } else if (tokens_.take_sign("[")) {
      object = subscript(std::move(object), line);
    } else if (tokens_.is_sign("(")) {
      ArgumentList list = arguments();
      const int below = std::max(depth_of(object), depth_of(list));
      object = made(line, below, CallOf{std::move(object), std::move(list)});
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::dotted(ExpressionPtr object, int line) {
  const int below = depth_of(object);
  if (tokens_.is(TokenKind::kInteger)) return made(line, below, ItemOf{std::move(object), number()});
  return made(line, below, AttributeOf{std::move(object), tokens_.expect_any_name()});
}

/// [a], [a:b:c] or [a, b].
ExpressionPtr ExpressionParser::subscript(ExpressionPtr object, int line) {
  std::vector<ExpressionPtr> keys;
  bool is_slice = false;
  while (!tokens_.is_sign("]")) {
    if (!keys.empty()) tokens_.expect_sign(",");
    keys.push_back(subscript_part(object, is_slice));
    if (is_slice && keys.size() > 1) tokens_.fail("a slice stands alone between its brackets");
    if (is_slice) {
      tokens_.expect_sign("]");
      return std::move(keys[0]);
    }
  }
  tokens_.expect_sign("]");
  if (keys.empty()) tokens_.fail("expected an expression between brackets");
  const int below = std::max(depth_of(object), depth_of(keys)) + 1;
  ExpressionPtr key = std::move(keys[0]);
  if (keys.size() > 1) {
    keys[0] = std::move(key);
    const int inner = depth_of(keys);
    key = made(line, inner, Group{Sequence::Kind::kTuple, std::move(keys)});
  }
  return made(line, below, ItemOf{std::move(object), std::move(key)});
}

/// A key, or the whole slice of `object`, which then is part of it.
ExpressionPtr ExpressionParser::subscript_part(ExpressionPtr& object, bool& is_slice) {
  const int line = tokens_.current().line;
  ExpressionPtr bounds[3];
  if (!tokens_.is_sign(":")) bounds[0] = expression();
  if (!tokens_.is_sign(":")) return std::move(bounds[0]);
  is_slice = true;
  for (std::size_t i = 1; i < 3 && tokens_.take_sign(":"); ++i)
    if (!tokens_.is_sign(":") && !tokens_.is_sign("]") && !tokens_.is_sign(",")) bounds[i] = expression();
  const int below =
      std::max({depth_of(object), depth_of(bounds[0]), depth_of(bounds[1]), depth_of(bounds[2])});
  return made(line, below,
              SliceOf{std::move(object), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])});
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr object) {
  while (true) {
    if (tokens_.take_sign("|")) {
      object = filter(std::move(object));
    } else if (tokens_.is_name("is")) {
      object = test(std::move(object));
    } else if (tokens_.is_sign("(")) {
      const int line = tokens_.current().line;
      ArgumentList list = arguments();
      const int below = std::max(depth_of(object), depth_of(list));
      object = made(line, below, CallOf{std::move(object), std::move(list)});
    } else {
      return object;
    }
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect_any_name();
  while (tokens_.take_sign(".")) name += "." + tokens_.expect_any_name();
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr object) {
  const int line = tokens_.current().line;
  std::string name = dotted_name();
  const Filter* filter = find_filter(name);
  if (filter == nullptr) unknown_.push_back({"No filter named '" + name + "'.", line});
  ArgumentList list;
  if (tokens_.is_sign("(")) list = arguments();
  const int below = std::max(depth_of(object), depth_of(list));
  return made(line, below, FilterOf{std::move(object), filter, std::move(name), std::move(list)});
}

ExpressionPtr ExpressionParser::test(ExpressionPtr object) {
  const int line = tokens_.next().line;
  const bool is_not = tokens_.take_name("not");
  std::string name = dotted_name();
  const Test* test = find_test(name);
  if (test == nullptr) unknown_.push_back({"No test named '" + name + "'.", line});
  ArgumentList list;
  const bool operand = tokens_.is(TokenKind::kName) || tokens_.is(TokenKind::kText) ||
                       tokens_.is(TokenKind::kInteger) || tokens_.is(TokenKind::kFloat) ||
                       tokens_.is_sign("[") || tokens_.is_sign("{");
  if (tokens_.is_sign("(")) {
    list = arguments();
  } else if (operand && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and")) {
    if (tokens_.is_name("is")) tokens_.fail("You cannot chain multiple tests with is");
    const Descent descent(*this);
    list.positional.push_back(postfix(primary()));
  }
  const int below = std::max(depth_of(object), depth_of(list));
  ExpressionPtr result = made(line, below, TestOf{std::move(object), test, std::move(name), std::move(list)});
  return is_not ? made(line, below + 1, Unary{Unary::Kind::kNot, std::move(result)}) : std::move(result);
}

ArgumentList ExpressionParser::arguments() {
  const Descent descent(*this);
  ArgumentList list;
  tokens_.expect_sign("(");
  for (bool first = true; !tokens_.is_sign(")"); first = false) {
    if (!first) tokens_.expect_sign(",");
    if (tokens_.is_sign(")")) break;
    const bool is_named = tokens_.is(TokenKind::kName) && tokens_.behind().kind == TokenKind::kSign &&
                          tokens_.behind().text == "=";
    if (tokens_.take_sign("**")) {
      if (list.all_named != nullptr) tokens_.fail("invalid syntax for function call expression");
      list.all_named = expression();
    } else if (list.all_named != nullptr || (list.all_positional != nullptr && !is_named)) {
      tokens_.fail("invalid syntax for function call expression");
    } else if (tokens_.take_sign("*")) {
      list.all_positional = expression();
    } else if (is_named) {
      std::string name = tokens_.next().text;
      tokens_.next();
      list.named.emplace_back(std::move(name), expression());
    } else {
      if (!list.named.empty()) tokens_.fail("invalid syntax for function call expression");
      list.positional.push_back(expression());
    }
  }
  tokens_.expect_sign(")");
  return list;
}

}  // namespace moeloom::jinja
