// What statements do.
#include "renderer.hpp"

#include <algorithm>

namespace moeloom::jinja {
namespace {

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", Function::kRange},         {"dict", Function::kDict},
    {"namespace", Function::kNamespace}, {"raise_exception", Function::kRaise},
    {"strftime_now", Function::kClock},  {"cycler", Function::kCycler},
    {"joiner", Function::kJoiner},       {"lipsum", Function::kLipsum}};

NameId id_in(const Program& program, std::string_view name) {
  const auto found = program.ids.find(name);
  return found == program.ids.end() ? -1 : found->second;
}

/// What every template finds, as far as this one names it.
ScopePtr outermost(const Program& program, const ChatRequest& request, Meter& meter) {
  auto scope = std::make_shared<Scope>();
  const auto set = [&](std::string_view name, const auto& make) {
    if (const NameId id = id_in(program, name); id >= 0) scope->set(id, make(), meter);
  };
  for (const auto& [name, function] : kFunctions) set(name, [f = function] { return Value(f); });
  set("messages", [&] { return value_of(request.messages); });
  set("tools", [&] { return value_of(request.tools); });
  set("documents", [&] { return value_of(request.documents); });
  set("add_generation_prompt", [&] { return Value(request.add_generation_prompt); });
  for (const auto& [name, json] : request.variables) set(name, [&value = json] { return value_of(value); });
  return scope;
}

}  // namespace

void Scope::set(NameId name, Value value, Meter& meter) {
  meter.pass(names.size());
  for (auto& [known, held] : names)
    if (known == name) {
      held = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

const Value* Scope::find(NameId name, Meter& meter) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    meter.pass(scope->names.size());
    for (const auto& [known, held] : scope->names)
      if (known == name) return &held;
  }
  return nullptr;
}

Renderer::Renderer(const Program& program, const ChatRequest& request)
    : program_(program),
      request_(request),
      meter_(request.limits.steps, request.limits.made_bytes),
      loop_name_(id_in(program, "loop")) {
  for (std::size_t i = 0; i < special_names_.size(); ++i)
    special_names_[i] = id_in(program, kSpecialNames[i]);
}

// A macro holds its scope, and a scope the values that name the macro: no owner is freed by itself.
Renderer::~Renderer() = default;

RenderedChat Renderer::render() {
  run(program_.body, inner(outermost(program_, request_, meter_)));
  check_spans();
  return {std::move(output_), std::move(spans_), program_.marks_assistant};
}

ScopePtr Renderer::inner(const ScopePtr& scope) const {
  auto result = std::make_shared<Scope>();
  result->outer = scope;
  return result;
}

Renderer::Flow Renderer::run(const Body& body, const ScopePtr& scope) {
  const Nested nested(*this);
  for (const Statement& statement : body)
    if (const Flow flow = run(statement, scope); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Statement& statement, const ScopePtr& scope) {
  meter_.step();
  line_ = statement.line;
  return std::visit([&](const auto& node) { return run(node, scope); }, statement.node);
}

void Renderer::put(std::string_view text) {
  if (text.size() > request_.limits.output_bytes - std::min(to_->size(), request_.limits.output_bytes))
    throw Failure("the template prints more than a render may");
  meter_.make(text.size());
  *to_ += text;
}

Renderer::Flow Renderer::run(const Data& node, const ScopePtr&) {
  put(node.text);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Print& node, const ScopePtr& scope) {
  for (const ExpressionPtr& value : node.values) put(str(meter_, evaluate(*value, scope)));
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const If& node, const ScopePtr& scope) {
  for (const auto& [test, body] : node.branches)
    if (truth(evaluate(*test, scope))) return run(body, scope);
  return run(node.otherwise, scope);
}

std::shared_ptr<Loop> Renderer::begin_loop(const For& node, const ScopePtr& scope) {
  const Value iterable = evaluate(*node.iterable, scope);
  auto loop = std::make_shared<Loop>();
  loop->items = iterated(meter_, iterable);
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, 1 + depth_of(item));
  meter_.make(sizeof(Loop));
  if (node.condition == nullptr) return loop;
  loop->takes = [this, &node, scope](const Value& item) {
    const ScopePtr own = inner(scope);
    assign(node.target, item, own);
    return truth(evaluate(*node.condition, own));
  };
  return loop;
}

Renderer::Flow Renderer::run(const For& node, const ScopePtr& scope) {
  const std::shared_ptr<Loop> loop = begin_loop(node, scope);
  bool any = false;
  bool completed = false;  // a body: Jinja's `else` asks for that, not for items
  while (loop->peek() != nullptr) {
    if (std::exchange(any, true)) ++loop->index0;
    loop->previous = std::move(loop->current);
    loop->current = *std::exchange(loop->ahead, std::nullopt);
    const ScopePtr own = inner(scope);
    if (loop_name_ >= 0) own->set(loop_name_, loop, meter_);
    assign(node.target, loop->current, own);
    const Flow flow = run(node.body, own);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // The condition holds the scope; whoever kept the loop finds it at its end.
  loop->takes = nullptr;
  loop->next = loop->items.size();
  return completed ? Flow::kNext : run(node.otherwise, inner(scope));
}

Renderer::Flow Renderer::run(const Set& node, const ScopePtr& scope) {
  assign(node.target, evaluate(*node.value, scope), scope);
  return Flow::kNext;
}

void Renderer::assign(const Target& target, Value value, const ScopePtr& scope) {
  if (target.is_tuple) {
    std::vector<Value> parts = iterated(meter_, value);
    if (parts.size() != target.parts.size())
      throw Failure("expected " + std::to_string(target.parts.size()) + " values to unpack, got " +
                    std::to_string(parts.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], std::move(parts[i]), scope);
    return;
  }
  if (target.attribute.empty()) return scope->set(target.name, std::move(value), meter_);
  const Value* holder = scope->find(target.name, meter_);
  Namespace* const* space = holder == nullptr ? nullptr : holder->as<Namespace*>();
  if (space == nullptr) throw Failure("cannot assign attribute on non-namespace object");
  meter_.pass((*space)->members.size());
  for (auto& [name, held] : (*space)->members)
    if (name == target.attribute) {
      held = std::move(value);
      return;
    }
  (*space)->members.emplace_back(target.attribute, std::move(value));
}

Renderer::Flow Renderer::capture(const Body& body, const ScopePtr& scope, std::string& text) {
  std::string* const before = std::exchange(to_, &text);
  // A failure leaves the render, and nobody prints after it.
  const Flow flow = run(body, scope);
  to_ = before;
  return flow;
}

std::string Renderer::captured(const Body& body, const ScopePtr& scope) {
  std::string text;
  capture(body, scope, text);
  return text;
}

Value Renderer::filtered_text(std::string text, const std::vector<ExpressionPtr>& filters,
                              const ScopePtr& scope) {
  Value value = text_value(std::move(text));
  for (const ExpressionPtr& filter : filters)
    value = filtered(value, std::get<FilterOf>(filter->node), scope);
  return value;
}

Renderer::Flow Renderer::run(const SetBlock& node, const ScopePtr& scope) {
  std::string text;
  if (const Flow flow = capture(node.body, inner(scope), text); flow != Flow::kNext) return flow;
  assign(node.target, filtered_text(std::move(text), node.filters, scope), scope);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const FilterBlock& node, const ScopePtr& scope) {
  std::string text;
  if (const Flow flow = capture(node.body, inner(scope), text); flow != Flow::kNext) return flow;
  put(str(meter_, filtered_text(std::move(text), node.filters, scope)));
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const With& node, const ScopePtr& scope) {
  const ScopePtr own = inner(scope);
  for (const auto& [target, value] : node.values) assign(target, evaluate(*value, scope), own);
  return run(node.body, own);
}

const Macro* Renderer::new_macro(const MacroNode& node, ScopePtr scope) {
  meter_.make(sizeof(Macro));
  macros_.push_back({&node, std::move(scope)});
  return &macros_.back();
}

Renderer::Flow Renderer::run(const MacroDefinition& node, const ScopePtr& scope) {
  scope->set(node.name, new_macro(*node.macro, scope), meter_);
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const CallBlock& node, const ScopePtr& scope) {
  const auto& call = std::get<CallOf>(node.call->node);
  const Value callee = evaluate(*call.callee, scope);
  Arguments arguments = arguments_of(call.arguments, scope);
  arguments.named.emplace_back(kSpecialNames[2], new_macro(*node.caller, scope));
  put(str(meter_, called(callee, arguments)));
  return Flow::kNext;
}

// Where the text goes straight into the output its place is known. Inside a macro it is not yet: the place is
// then taken for the output's end, as transformers does, and checked when the output is whole.
Renderer::Flow Renderer::run(const Generation& node, const ScopePtr& scope) {
  const std::string text = captured(node.body, inner(scope));
  const std::size_t begin = output_.size();
  spans_.push_back({begin, begin + text.size()});
  span_texts_.push_back(to_ == &output_ ? "" : text);
  put(text);
  return Flow::kNext;
}

void Renderer::check_spans() const {
  for (std::size_t i = 0; i < spans_.size(); ++i)
    if (output_.compare(std::min(spans_[i].begin, output_.size()), span_texts_[i].size(), span_texts_[i]) !=
        0)
      throw Failure("a generation block inside a macro or a set block is not printed where it was called");
}

// ---- loops ------------------------------------------------------------------------------------------------

const Value* Loop::peek() {
  while (!ahead && next < items.size()) {
    const Value& item = items[next++];
    if (!takes || takes(item)) ahead = item;
  }
  return ahead ? &*ahead : nullptr;
}

int depth_of_loop(const Loop& loop) {
  return loop.depth;
}

namespace {

/// Every item that passes has then been asked for.
std::size_t length_of_loop(Loop& loop) {
  if (loop.length) return *loop.length;
  std::vector<Value> rest;
  while (loop.peek() != nullptr) rest.push_back(*std::exchange(loop.ahead, std::nullopt));
  const std::size_t length = loop.index0 + 1 + rest.size();
  loop.items = std::move(rest);
  loop.next = 0;
  loop.takes = nullptr;
  loop.length = length;
  return length;
}

}  // namespace

Value loop_attribute(const std::shared_ptr<Loop>& loop, const std::string& name) {
  const auto count = [](std::size_t number) { return integer_value(static_cast<Integer>(number)); };
  if (name == "index") return count(loop->index0 + 1);
  if (name == "index0") return count(loop->index0);
  if (name == "first") return loop->index0 == 0;
  if (name == "last") return loop->peek() == nullptr;
  if (name == "length") return count(length_of_loop(*loop));
  if (name == "revindex") return count(length_of_loop(*loop) - loop->index0);
  if (name == "revindex0") return count(length_of_loop(*loop) - loop->index0 - 1);
  // Jinja counts recursive loops alone, and those are refused.
  if (name == "depth") return integer_value(1);
  if (name == "depth0") return integer_value(0);
  if (name == "previtem") return loop->index0 == 0 ? Value(Undefined{}) : loop->previous;
  if (name == "nextitem") return loop->peek() == nullptr ? Value(Undefined{}) : *loop->peek();
  if (name == "cycle" || name == "changed") return Method{std::make_shared<const Value>(loop), name};
  return Undefined{&name, "LoopContext", false};
}

std::optional<Value> macro_attribute(const Macro& macro, const std::string& name) {
  for (const std::string_view refused : {"catch_kwargs", "catch_varargs", "caller", "explicit_caller"})
    if (name == refused) throw Failure("the attribute '" + name + "' of a macro is not implemented");
  if (name != "name" && name != "arguments") return std::nullopt;
  if (macro.node->name == kSpecialNames[2])
    throw Failure("the attribute '" + name + "' of caller is not implemented");
  if (name == "name") return text_value(macro.node->name);
  std::vector<Value> arguments;
  for (const std::string& parameter : macro.node->parameter_names) arguments.push_back(text_value(parameter));
  return sequence_value(std::move(arguments), Sequence::Kind::kTuple);
}

Value call_loop_method(Meter& meter, Loop& loop, const std::string& name, const Arguments& arguments) {
  if (!arguments.named.empty()) throw Failure("loop." + name + "() takes no keyword arguments");
  const std::vector<Value>& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) throw Failure("no items for cycling given");
    return values[loop.index0 % values.size()];
  }
  const bool same = loop.changed.size() == values.size() &&
                    std::ranges::equal(loop.changed, values,
                                       [&](const Value& a, const Value& b) { return equal(meter, a, b); });
  // One loop would hold the other, or itself, for ever.
  for (const Value& value : values)
    if (depth_of(value) > 0) throw Failure("loop.changed() is implemented for texts and numbers alone");
  loop.changed = values;
  return !same;
}

}  // namespace moeloom::jinja
