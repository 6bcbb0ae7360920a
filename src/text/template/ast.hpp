// A template's syntax tree.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "runtime.hpp"

namespace moeloom::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
using NameId = int;  // a name's place in Program::names

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr all_positional;  // *this
  ExpressionPtr all_named;       // **this
};

struct Constant {
  Value value;
};
struct Name {
  NameId id;
};
struct Group {
  Sequence::Kind kind;
  std::vector<ExpressionPtr> items;
};
struct DictOf {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
};
struct AttributeOf {
  ExpressionPtr object;
  std::string name;
};
struct ItemOf {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceOf {
  ExpressionPtr object;
  ExpressionPtr begin, end, step;  // each may be none
};
struct CallOf {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterOf {
  ExpressionPtr object;  // none: of a block's text
  const Filter* filter;  // none: unknown, an error when it is reached
  std::string name;
  ArgumentList arguments;
};
struct TestOf {
  ExpressionPtr object;
  const Test* test;
  std::string name;
  ArgumentList arguments;
};
struct Unary {
  enum class Kind { kNot, kNegative, kPositive } kind;
  ExpressionPtr operand;
};
struct Binary {
  Operator op;
  ExpressionPtr left, right;
};
struct Logic {
  bool is_and;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Comparing {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> others;
};
struct Conditional {
  ExpressionPtr test, yes, no;  // no `no`: undefined
};

struct Expression {
  int line;
  int depth;
  std::variant<Constant, Name, Group, DictOf, AttributeOf, ItemOf, SliceOf, CallOf, FilterOf, TestOf, Unary,
               Binary, Logic, Concatenation, Comparing, Conditional>
      node;
};

struct Statement;
using Body = std::vector<Statement>;

/// Where a value goes: a name, an attribute of a namespace, or several of them.
struct Target {
  NameId name = 0;
  std::string attribute;      // of a namespace; empty: the name
  std::vector<Target> parts;  // of a tuple
  bool is_tuple = false;
};

struct Data {
  std::string text;
};
struct Print {
  std::vector<ExpressionPtr> values;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
/// Of filters, the first is the innermost.
struct SetBlock {
  Target target;
  std::vector<ExpressionPtr> filters;
  Body body;
};
struct FilterBlock {
  std::vector<ExpressionPtr> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
struct MacroNode {
  std::string name;
  std::vector<NameId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool takes_all_positional = false;    // it reads `varargs`
  bool takes_all_named = false;         // `kwargs`
  bool takes_caller = false;
  Body body;
};
struct MacroDefinition {
  NameId name;
  std::unique_ptr<const MacroNode> macro;
};
struct CallBlock {
  ExpressionPtr call;
  std::unique_ptr<const MacroNode> caller;
};
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Data, Print, If, For, Set, SetBlock, FilterBlock, With, MacroDefinition, CallBlock, Generation,
               Break, Continue>
      node;
};

/// What a macro is given where it reads them.
inline constexpr std::string_view kSpecialNames[] = {"varargs", "kwargs", "caller"};

/// A template that has been read.
struct Program {
  using SpecialUses = std::array<int, 3>;

  Body body;
  std::vector<std::string> names;
  std::map<std::string, NameId, std::less<>> ids;
  SpecialUses special_uses = {};  // how often each special name has been met so far
  bool marks_assistant = false;
  NameId id_of(std::string_view name);
};

/// Throws SyntaxError (lexer.hpp).
Program parse_program(std::string_view source);

}  // namespace moeloom::jinja
