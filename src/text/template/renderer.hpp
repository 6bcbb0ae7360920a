// Walks a template's tree.
#pragma once

#include "moeloom/text/chat_template.hpp"

#include <deque>
#include <functional>

#include "ast.hpp"

namespace moeloom::jinja {

/// Variables of a block. What is set in an inner one is gone behind it.
struct Scope {
  std::shared_ptr<const Scope> outer;
  std::vector<std::pair<NameId, Value>> names;

  void set(NameId name, Value value, Meter& meter);
  const Value* find(NameId name, Meter& meter) const;
};
using ScopePtr = std::shared_ptr<Scope>;

struct Macro {
  const MacroNode* node;
  ScopePtr scope;  // where it was defined
};

/// A loop's items, taken one after the other: a condition sees what the body did before.
struct Loop {
  std::vector<Value> items;
  std::size_t next = 0;
  std::function<bool(const Value&)> takes;  // empty: every item
  std::size_t index0 = 0;
  Value previous, current;
  std::optional<Value> ahead;
  std::optional<std::size_t> length;  // once it was asked for
  std::vector<Value> changed;
  int depth = 1;

  /// The next one that passes, which stays ahead.
  const Value* peek();
};

class Renderer {
 public:
  Renderer(const Program& program, const ChatRequest& request);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  /// Throws Failure; line() is then where.
  RenderedChat render();
  int line() const { return line_; }

 private:
  friend class Nested;
  enum class Flow { kNext, kBreak, kContinue };

  // expressions.cpp
  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value of(const Constant& node, const ScopePtr& scope);
  Value of(const Name& node, const ScopePtr& scope);
  Value of(const Group& node, const ScopePtr& scope);
  Value of(const DictOf& node, const ScopePtr& scope);
  Value of(const AttributeOf& node, const ScopePtr& scope);
  Value of(const ItemOf& node, const ScopePtr& scope);
  Value of(const SliceOf& node, const ScopePtr& scope);
  Value of(const CallOf& node, const ScopePtr& scope);
  Value of(const FilterOf& node, const ScopePtr& scope);
  Value of(const TestOf& node, const ScopePtr& scope);
  Value of(const Unary& node, const ScopePtr& scope);
  Value of(const Binary& node, const ScopePtr& scope);
  Value of(const Logic& node, const ScopePtr& scope);
  Value of(const Concatenation& node, const ScopePtr& scope);
  Value of(const Comparing& node, const ScopePtr& scope);
  Value of(const Conditional& node, const ScopePtr& scope);
  Value optional(const ExpressionPtr& expression, const ScopePtr& scope);
  Arguments arguments_of(const ArgumentList& list, const ScopePtr& scope);
  Value filtered(const Value& value, const FilterOf& node, const ScopePtr& scope);
  Value called(const Value& callee, const Arguments& arguments);
  Value called_function(Function function, const Arguments& arguments);
  Value called_macro(const Macro& macro, const Arguments& arguments);
  ScopePtr macro_scope(const Macro& macro, const Arguments& arguments);
  void bind_rest(const Macro& macro, const Arguments& arguments, Scope& scope);
  Value new_namespace(const Arguments& arguments);

  // renderer.cpp
  Flow run(const Body& body, const ScopePtr& scope);
  Flow run(const Statement& statement, const ScopePtr& scope);
  Flow run(const Data& node, const ScopePtr& scope);
  Flow run(const Print& node, const ScopePtr& scope);
  Flow run(const If& node, const ScopePtr& scope);
  Flow run(const For& node, const ScopePtr& scope);
  Flow run(const Set& node, const ScopePtr& scope);
  Flow run(const SetBlock& node, const ScopePtr& scope);
  Flow run(const FilterBlock& node, const ScopePtr& scope);
  Flow run(const With& node, const ScopePtr& scope);
  Flow run(const MacroDefinition& node, const ScopePtr& scope);
  Flow run(const CallBlock& node, const ScopePtr& scope);
  Flow run(const Generation& node, const ScopePtr& scope);
  Flow run(const Break&, const ScopePtr&) { return Flow::kBreak; }
  Flow run(const Continue&, const ScopePtr&) { return Flow::kContinue; }

  void put(std::string_view text);
  /// What a body prints, as a text of its own. break and continue leave the block, so the text is dropped.
  Flow capture(const Body& body, const ScopePtr& scope, std::string& text);
  /// Of a body that cannot leave a loop around it.
  std::string captured(const Body& body, const ScopePtr& scope);
  Value filtered_text(std::string text, const std::vector<ExpressionPtr>& filters, const ScopePtr& scope);
  void assign(const Target& target, Value value, const ScopePtr& scope);
  const Macro* new_macro(const MacroNode& node, ScopePtr scope);
  std::shared_ptr<Loop> begin_loop(const For& node, const ScopePtr& scope);
  ScopePtr inner(const ScopePtr& scope) const;
  void check_spans() const;

  const Program& program_;
  const ChatRequest& request_;
  Meter meter_;
  int line_ = 0;
  int depth_ = 0;
  NameId loop_name_ = -1;
  std::array<NameId, 3> special_names_ = {-1, -1, -1};
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
  std::string output_;
  std::string* to_ = &output_;
  std::vector<ByteRange> spans_;
  std::vector<std::string> span_texts_;  // of those printed into a text of its own
};

/// One level deeper, until it ends.
class Nested {
 public:
  explicit Nested(Renderer& renderer);
  ~Nested();
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Renderer& renderer_;
};

}  // namespace moeloom::jinja
