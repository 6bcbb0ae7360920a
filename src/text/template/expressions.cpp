// What expressions give.
#include <algorithm>

#include "renderer.hpp"

namespace moeloom::jinja {

Nested::Nested(Renderer& renderer) : renderer_(renderer) {
  if (renderer_.depth_ >= renderer_.request_.limits.depth)
    throw Failure("the template nests deeper than " + std::to_string(renderer_.request_.limits.depth));
  ++renderer_.depth_;
}
Nested::~Nested() {
  --renderer_.depth_;
}

Value Renderer::evaluate(const Expression& expression, const ScopePtr& scope) {
  const Nested nested(*this);
  meter_.step();
  line_ = expression.line;
  Value value = std::visit([&](const auto& node) { return of(node, scope); }, expression.node);
  line_ = expression.line;
  return value;
}

Value Renderer::optional(const ExpressionPtr& expression, const ScopePtr& scope) {
  return expression == nullptr ? kNone : evaluate(*expression, scope);
}

Value Renderer::of(const Constant& node, const ScopePtr&) {
  return node.value;
}

Value Renderer::of(const Name& node, const ScopePtr& scope) {
  if (const Value* value = scope->find(node.id, meter_)) return *value;
  return Undefined{&program_.names[static_cast<std::size_t>(node.id)], nullptr, false};
}

Value Renderer::of(const Group& node, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item, scope));
  meter_.make(sizeof(Sequence) + items.size() * sizeof(Value));
  return sequence_value(std::move(items), node.kind);
}

Value Renderer::of(const DictOf& node, const ScopePtr& scope) {
  Dict dict;
  constexpr std::size_t kBytesOfMember = 256;
  meter_.make(sizeof(Dict) + node.members.size() * kBytesOfMember);
  for (const auto& [key, value] : node.members) {
    Value name = evaluate(*key, scope);
    scan_key(meter_, name);
    dict.set(std::move(name), evaluate(*value, scope));
  }
  return dict_value(std::move(dict));
}

Value Renderer::of(const AttributeOf& node, const ScopePtr& scope) {
  return attribute_of(meter_, evaluate(*node.object, scope), node.name);
}

Value Renderer::of(const ItemOf& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.object, scope);
  return item_of(meter_, object, evaluate(*node.key, scope));
}

Value Renderer::of(const SliceOf& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.object, scope);
  const Value begin = optional(node.begin, scope);
  const Value end = optional(node.end, scope);
  return slice_of(meter_, object, begin, end, optional(node.step, scope));
}

Value Renderer::of(const FilterOf& node, const ScopePtr& scope) {
  return filtered(evaluate(*node.object, scope), node, scope);
}

Value Renderer::filtered(const Value& value, const FilterOf& node, const ScopePtr& scope) {
  if (node.filter == nullptr) throw Failure("No filter named '" + node.name + "'.");
  const int line = line_;
  const Arguments arguments = arguments_of(node.arguments, scope);
  line_ = line;
  if (const std::string* text = value.text()) meter_.scan(text->size());
  return node.filter->apply(meter_, value, arguments);
}

Value Renderer::of(const TestOf& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.object, scope);
  if (node.test == nullptr) throw Failure("No test named '" + node.name + "'.");
  return node.test->holds(meter_, value, arguments_of(node.arguments, scope));
}

Value Renderer::of(const Unary& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.operand, scope);
  if (node.kind == Unary::Kind::kNot) return !truth(value);
  const Value result = negative(value);
  return node.kind == Unary::Kind::kNegative ? result : negative(result);
}

Value Renderer::of(const Binary& node, const ScopePtr& scope) {
  const Value left = evaluate(*node.left, scope);
  return operate(meter_, node.op, left, evaluate(*node.right, scope));
}

Value Renderer::of(const Logic& node, const ScopePtr& scope) {
  Value left = evaluate(*node.left, scope);
  return truth(left) == node.is_and ? evaluate(*node.right, scope) : left;
}

Value Renderer::of(const Concatenation& node, const ScopePtr& scope) {
  std::string text;
  for (const ExpressionPtr& part : node.parts) text += str(meter_, evaluate(*part, scope));
  return text_value(std::move(text));
}

Value Renderer::of(const Comparing& node, const ScopePtr& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [comparison, other] : node.others) {
    Value right = evaluate(*other, scope);
    if (!compare(meter_, comparison, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::of(const Conditional& node, const ScopePtr& scope) {
  if (truth(evaluate(*node.test, scope))) return evaluate(*node.yes, scope);
  return node.no == nullptr ? Value() : evaluate(*node.no, scope);
}

// ---- calls ------------------------------------------------------------------------------------------------

Arguments Renderer::arguments_of(const ArgumentList& list, const ScopePtr& scope) {
  Arguments arguments;
  for (const ExpressionPtr& each : list.positional) arguments.positional.push_back(evaluate(*each, scope));
  for (const auto& [name, each] : list.named) arguments.named.emplace_back(name, evaluate(*each, scope));
  if (list.all_positional != nullptr)
    for (Value& value : iterated(meter_, evaluate(*list.all_positional, scope)))
      arguments.positional.push_back(std::move(value));
  if (list.all_named == nullptr) return arguments;
  const Value named = evaluate(*list.all_named, scope);
  if (named.dict() == nullptr) throw Failure("argument after ** must be a mapping");
  for (const auto& [key, value] : named.dict()->members()) {
    if (key.text() == nullptr) throw Failure("keywords must be strings");
    meter_.make(key.text()->size() + sizeof(Value));
    arguments.named.emplace_back(*key.text(), value);
  }
  return arguments;
}

Value Renderer::of(const CallOf& node, const ScopePtr& scope) {
  const int line = line_;
  const Value callee = evaluate(*node.callee, scope);
  const Arguments arguments = arguments_of(node.arguments, scope);
  line_ = line;
  return called(callee, arguments);
}

Value Renderer::called(const Value& callee, const Arguments& arguments) {
  if (const Method* method = callee.as<Method>())
    return call_method(meter_, *method->self, method->name, arguments);
  if (const Macro* const* macro = callee.as<const Macro*>()) return called_macro(**macro, arguments);
  if (const Function* function = callee.as<Function>()) return called_function(*function, arguments);
  if (const Undefined* undefined = callee.as<Undefined>()) throw Failure(undefined_complaint(*undefined));
  throw Failure(std::string("'") + type_name(callee) + "' object is not callable");
}

Value Renderer::called_function(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return range_of(meter_, arguments);
    case Function::kNamespace:
      return new_namespace(arguments);
    case Function::kClock: {
      const Bound bound("strftime_now", arguments, {"format"}, 1);
      return text_value(clock_text(meter_, request_.now, bound.text(0, "")));
    }
    case Function::kRaise: {
      const Bound bound("raise_exception", arguments, {"message"}, 1);
      throw Failure(str(meter_, bound[0]), true);
    }
    case Function::kCycler:
      throw Failure("the function cycler is not implemented");
    case Function::kJoiner:
      throw Failure("the function joiner is not implemented");
    case Function::kLipsum:
      throw Failure("the function lipsum is not implemented");
    case Function::kDict:
      break;
  }
  Dict dict;
  if (arguments.positional.size() > 1) throw Failure("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Dict* given = arguments.positional[0].dict();
    if (given == nullptr) throw Failure("dict() takes a dict or keyword arguments");
    for (const auto& [key, value] : given->members()) {
      scan_key(meter_, key);
      dict.set(key, value);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(text_value(name), value);
  constexpr std::size_t kBytesOfMember = 256;
  meter_.make(dict.members().size() * kBytesOfMember);
  return dict_value(std::move(dict));
}

Value Renderer::new_namespace(const Arguments& arguments) {
  Namespace space;
  const auto set = [&](const std::string& name, const Value& value) {
    meter_.make(sizeof(Value) + name.size());
    meter_.pass(space.members.size());
    const auto known = std::ranges::find(space.members, name, &std::pair<std::string, Value>::first);
    if (known != space.members.end())
      known->second = value;
    else
      space.members.emplace_back(name, value);
  };
  for (const Value& given : arguments.positional) {
    if (given.dict() == nullptr) throw Failure("namespace() takes a dict or keyword arguments");
    for (const auto& [key, value] : given.dict()->members())
      set(key.text() == nullptr ? "" : *key.text(), value);
  }
  for (const auto& [name, value] : arguments.named) set(name, value);
  meter_.make(sizeof(Namespace));
  namespaces_.push_back(std::move(space));
  return &namespaces_.back();
}

/// What the parameters do not take.
void Renderer::bind_rest(const Macro& macro, const Arguments& arguments, Scope& scope) {
  const MacroNode& node = *macro.node;
  const std::size_t count = node.parameters.size();
  std::vector<Value> rest;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
  if (!rest.empty() && !node.takes_all_positional)
    throw Failure("macro '" + node.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  Dict named;
  Value caller;
  for (const auto& [name, value] : arguments.named) {
    meter_.pass(node.parameter_names.size());
    const auto place = std::ranges::find(node.parameter_names, name);
    if (place != node.parameter_names.end()) {
      const auto i = static_cast<std::size_t>(place - node.parameter_names.begin());
      if (i < arguments.positional.size())
        throw Failure("macro '" + node.name + "' got '" + name + "' twice");
      scope.set(node.parameters[i], value, meter_);
    } else if (node.takes_caller && name == kSpecialNames[2]) {
      caller = value;
    } else if (node.takes_all_named) {
      named.set(text_value(name), value);
    } else {
      throw Failure("macro '" + node.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (node.takes_all_positional)
    scope.set(special_names_[0], sequence_value(std::move(rest), Sequence::Kind::kTuple), meter_);
  if (node.takes_all_named) scope.set(special_names_[1], dict_value(std::move(named)), meter_);
  if (node.takes_caller) scope.set(special_names_[2], std::move(caller), meter_);
}

ScopePtr Renderer::macro_scope(const Macro& macro, const Arguments& arguments) {
  const MacroNode& node = *macro.node;
  ScopePtr scope = inner(macro.scope);
  const std::size_t count = node.parameters.size();
  for (std::size_t i = 0; i < std::min(count, arguments.positional.size()); ++i)
    scope->set(node.parameters[i], arguments.positional[i], meter_);
  bind_rest(macro, arguments, *scope);
  const std::size_t required = count - node.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    meter_.pass(scope->names.size());
    const bool given =
        std::ranges::any_of(scope->names, [&](const auto& each) { return each.first == node.parameters[i]; });
    if (given) continue;
    scope->set(node.parameters[i],
               i < required ? Value(Undefined{&node.parameter_names[i], nullptr, false})
                            : evaluate(*node.defaults[i - required], scope),
               meter_);
  }
  return scope;
}

Value Renderer::called_macro(const Macro& macro, const Arguments& arguments) {
  const Nested nested(*this);
  return text_value(captured(macro.node->body, macro_scope(macro, arguments)));
}

}  // namespace moeloom::jinja
