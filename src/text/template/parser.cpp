// Statements of a template.
#include <algorithm>

#include "expression_parser.hpp"

namespace moeloom::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

constexpr int kMostNestedBlocks = 100;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), expressions_(tokens_, program_) {}

  Program program() {
    program_.body = body({});
    return std::move(program_);
  }

 private:
  /// Up to the tag of one of these names, whose begin has then been taken; none: to the template's end.
  Body body(Names ends) {
    if (++depth_ > kMostNestedBlocks)
      tokens_.fail("blocks nest deeper than " + std::to_string(kMostNestedBlocks));
    Body body;
    while (!tokens_.is(TokenKind::kEnd)) {
      const int line = tokens_.current().line;
      if (tokens_.is(TokenKind::kData)) {
        body.push_back({line, Data{tokens_.next().text}});
      } else if (tokens_.is(TokenKind::kPrintBegin)) {
        tokens_.next();
        body.push_back({line, print(settled(expressions_.tuple()))});
        tokens_.expect(TokenKind::kPrintEnd, "'}}'");
      } else {
        tokens_.expect(TokenKind::kBlockBegin, "a block");
        if (std::ranges::any_of(ends, [&](std::string_view name) { return tokens_.is_name(name); })) {
          --depth_;
          return body;
        }
        body.push_back(statement());
        tokens_.expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() != 0)
      tokens_.fail("the template ends where '" + std::string(*ends.begin()) + "' has to stand");
    --depth_;
    return body;
  }

  Body block(Names ends) {
    tokens_.expect(TokenKind::kBlockEnd, "'%}'");
    return body(ends);
  }

  /// A body in which nothing outside of it makes unknown filters soft.
  Body own_block(Names ends) {
    const bool soft = expressions_.is_soft();
    expressions_.set_soft(false);
    Body result = block(ends);
    expressions_.set_soft(soft);
    return result;
  }

  ExpressionPtr settled(ExpressionPtr expression) {
    expressions_.settle();
    return expression;
  }

  static Print print(ExpressionPtr value) {
    Print node;
    node.values.push_back(std::move(value));
    return node;
  }

  Print print_statement() {
    Print node;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!node.values.empty()) tokens_.expect_sign(",");
      node.values.push_back(settled(expressions_.expression()));
    }
    return node;
  }

  Statement statement() {
    const Token tag = tokens_.next();
    if (tag.kind != TokenKind::kName) tokens_.fail("expected the name of a tag");
    const std::string& name = tag.text;
    const int line = tag.line;
    if (name == "if") return {line, if_statement()};
    if (name == "for") return {line, for_statement()};
    if (name == "set") return set_statement(line);
    if (name == "macro") return {line, macro_statement()};
    if (name == "call") return {line, call_statement()};
    if (name == "filter") return {line, filter_statement()};
    if (name == "with") return {line, with_statement()};
    if (name == "generation") return {line, generation_statement()};
    if (name == "print") return {line, print_statement()};
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail("'" + name + "' outside of a loop");
      return name == "break" ? Statement{line, Break{}} : Statement{line, Continue{}};
    }
    for (const std::string_view refused : {"include", "import", "from", "extends", "block", "autoescape"})
      if (name == refused)
        tokens_.fail("the tag '" + name + "' is not for a chat template: it is one file alone");
    throw SyntaxError{"Encountered unknown tag '" + name + "'.", line};
  }

  If if_statement() {
    const bool soft = expressions_.is_soft();
    If node;
    do {
      expressions_.set_soft(true);
      ExpressionPtr test = settled(expressions_.tuple(false));
      Body branch = block({"endif", "else", "elif"});
      node.branches.emplace_back(std::move(test), std::move(branch));
    } while (tokens_.take_name("elif"));
    if (tokens_.take_name("else")) node.otherwise = block({"endif"});
    tokens_.expect_name("endif");
    expressions_.set_soft(soft);
    return node;
  }

  For for_statement() {
    For node;
    ++fors_;
    node.target = target(false);
    tokens_.expect_name("in");
    node.iterable = settled(expressions_.tuple(false));
    const bool soft = expressions_.is_soft();
    expressions_.set_soft(false);
    if (tokens_.take_name("if")) node.condition = settled(expressions_.expression());
    if (tokens_.is_name("recursive")) tokens_.fail("a recursive loop is not implemented");
    ++loops_;
    node.body = block({"endfor", "else"});
    --loops_;
    if (tokens_.take_name("else")) node.otherwise = block({"endfor"});
    tokens_.expect_name("endfor");
    --fors_;
    expressions_.set_soft(soft);
    return node;
  }

  NameId new_name() {
    const std::string name = tokens_.expect_any_name();
    for (const std::string_view refused : {"true", "false", "none", "True", "False", "None"})
      if (name == refused) tokens_.fail("can't assign to '" + name + "'");
    return program_.id_of(name);
  }

  Target one_target(bool with_namespace) {
    Target target;
    if (tokens_.take_sign("(")) {
      target = this->target(with_namespace);
      tokens_.expect_sign(")");
      return target;
    }
    target.name = new_name();
    if (with_namespace && tokens_.take_sign(".")) target.attribute = tokens_.expect_any_name();
    const bool is_loop =
        target.attribute.empty() && program_.names[static_cast<std::size_t>(target.name)] == "loop";
    if (is_loop && fors_ > 0 && !in_with_)
      tokens_.fail("Can't assign to special loop variable in for-loop target");
    return target;
  }

  /// One, or several with commas.
  Target target(bool with_namespace) {
    if (++depth_ > kMostNestedBlocks)
      tokens_.fail("blocks nest deeper than " + std::to_string(kMostNestedBlocks));
    Target first = one_target(with_namespace);
    if (tokens_.is_sign(",")) {
      Target several;
      several.is_tuple = true;
      several.parts.push_back(std::move(first));
      while (tokens_.take_sign(",") && (tokens_.is(TokenKind::kName) || tokens_.is_sign("(")) &&
             !tokens_.is_name("in"))
        several.parts.push_back(one_target(with_namespace));
      first = std::move(several);
    }
    --depth_;
    return first;
  }

  std::vector<ExpressionPtr> filters() {
    std::vector<ExpressionPtr> filters;
    while (tokens_.take_sign("|")) filters.push_back(settled(expressions_.filter(nullptr)));
    return filters;
  }

  Statement set_statement(int line) {
    Target to = target(true);
    if (tokens_.take_sign("=")) {
      ExpressionPtr value = settled(expressions_.tuple());
      return {line, Set{std::move(to), std::move(value)}};
    }
    SetBlock node{std::move(to), filters(), {}};
    node.body = own_block({"endset"});
    tokens_.expect_name("endset");
    return {line, std::move(node)};
  }

  /// The parameters and body of a macro or of a call's block.
  std::unique_ptr<const MacroNode> macro(std::string name, std::string_view end) {
    auto node = std::make_unique<MacroNode>();
    node->name = std::move(name);
    if (tokens_.take_sign("(")) parameters(*node);
    const int loops = std::exchange(loops_, 0);
    const Program::SpecialUses before = program_.special_uses;
    node->body = own_block({end});
    tokens_.expect_name(end);
    loops_ = loops;
    const Program::SpecialUses& now = program_.special_uses;
    node->takes_all_positional = now[0] > before[0];
    node->takes_all_named = now[1] > before[1];
    node->takes_caller = now[2] > before[2];
    return node;
  }

  void parameters(MacroNode& node) {
    for (bool first = true; !tokens_.is_sign(")"); first = false) {
      if (!first) tokens_.expect_sign(",");
      if (std::ranges::find(node.parameter_names, tokens_.current().text) != node.parameter_names.end())
        tokens_.fail("duplicate argument '" + tokens_.current().text + "' in function definition");
      node.parameter_names.push_back(tokens_.current().text);
      node.parameters.push_back(new_name());
      if (tokens_.take_sign("="))
        node.defaults.push_back(settled(expressions_.expression()));
      else if (!node.defaults.empty())
        tokens_.fail("non-default argument follows default argument");
    }
    tokens_.expect_sign(")");
  }

  MacroDefinition macro_statement() {
    std::string name = tokens_.current().text;
    const NameId id = new_name();
    return {id, macro(std::move(name), "endmacro")};
  }

  CallBlock call_statement() {
    auto caller = std::make_unique<MacroNode>();
    caller->name = "caller";
    if (tokens_.take_sign("(")) parameters(*caller);
    ExpressionPtr call = settled(expressions_.expression());
    if (!std::holds_alternative<CallOf>(call->node)) tokens_.fail("expected a call");
    const int loops = std::exchange(loops_, 0);
    caller->body = own_block({"endcall"});
    loops_ = loops;
    tokens_.expect_name("endcall");
    return {std::move(call), std::move(caller)};
  }

  FilterBlock filter_statement() {
    FilterBlock node;
    node.filters.push_back(settled(expressions_.filter(nullptr)));
    for (ExpressionPtr& more : filters()) node.filters.push_back(std::move(more));
    node.body = own_block({"endfilter"});
    tokens_.expect_name("endfilter");
    return node;
  }

  With with_statement() {
    With node;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!node.values.empty()) tokens_.expect_sign(",");
      in_with_ = true;
      Target to = one_target(false);
      in_with_ = false;
      tokens_.expect_sign("=");
      node.values.emplace_back(std::move(to), settled(expressions_.expression()));
    }
    node.body = own_block({"endwith"});
    tokens_.expect_name("endwith");
    return node;
  }

  Generation generation_statement() {
    program_.marks_assistant = true;
    const int loops = std::exchange(loops_, 0);
    Generation node{own_block({"endgeneration"})};
    loops_ = loops;
    tokens_.expect_name("endgeneration");
    return node;
  }

  TokenStream tokens_;
  Program program_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
  int fors_ = 0;  // around, also around a macro
  bool in_with_ = false;
};

}  // namespace

NameId Program::id_of(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kSpecialNames); ++i)
    if (name == kSpecialNames[i]) ++special_uses[i];
  const auto known = ids.find(name);
  if (known != ids.end()) return known->second;
  const auto id = static_cast<NameId>(names.size());
  names.emplace_back(name);
  ids.emplace(name, id);
  return id;
}

Program parse_program(std::string_view source) {
  return StatementParser(tokens_of(source)).program();
}

}  // namespace moeloom::jinja
