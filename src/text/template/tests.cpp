// Jinja's tests: what stands behind `is`.
#include <algorithm>

#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

using Kind = Sequence::Kind;

template <bool (*Holds)(const Value&)>
bool simple(Meter&, const Value& value, const Arguments& arguments) {
  const Bound none("a test", arguments, {});
  return Holds(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && truth(value);
}
bool is_false(const Value& value) {
  return value.is<bool>() && !truth(value);
}
bool is_integer(const Value& value) {
  return value.is<Integer>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_number(const Value& value) {
  return value.is<bool>() || value.is<Integer>() || value.is<double>();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_escaped(const Value& value) {
  return value.text() != nullptr && value.as<Text>()->safe;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.dict() != nullptr ||
         value.sequence() != nullptr || value.is<std::shared_ptr<Loop>>();
}

/// What has a length and takes an index; a dict does.
bool is_sequence(const Value& value) {
  if (value.is_undefined() || value.text() != nullptr || value.dict() != nullptr) return true;
  const Sequence* sequence = value.sequence();
  return sequence != nullptr &&
         (sequence->kind == Kind::kList || sequence->kind == Kind::kTuple || sequence->kind == Kind::kRange);
}

bool is_callable(const Value& value) {
  return value.is<Method>() || value.is<Function>() || value.is<const Macro*>() || value.is_undefined();
}

bool of_case(Meter& meter, const Value& value, const std::string& method) {
  const Value text = text_value(str(meter, value));
  return truth(call_text_method(meter, *text.as<Text>(), method, {}));
}

bool test_lower(Meter& meter, const Value& value, const Arguments&) {
  return of_case(meter, value, "islower");
}
bool test_upper(Meter& meter, const Value& value, const Arguments&) {
  return of_case(meter, value, "isupper");
}

template <Comparison Op>
bool compared(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("a comparing test", arguments, {"other"}, 1);
  return compare(meter, Op, value, bound[0]);
}

bool divisible(Meter& meter, const Value& value, const Value& by) {
  return equal(meter, operate(meter, Operator::kModulo, value, by), integer_value(0));
}
bool is_divisible(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return divisible(meter, value, bound[0]);
}
bool is_even(Meter& meter, const Value& value, const Arguments&) {
  return divisible(meter, value, integer_value(2));
}
bool is_odd(Meter& meter, const Value& value, const Arguments&) {
  return equal(meter, operate(meter, Operator::kModulo, value, integer_value(2)), integer_value(1));
}

/// Python's `is`: simple values are one where they are alike.
bool is_same(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (value.held().index() != bound[0].held().index()) return false;
  if (value.sequence() != nullptr) return value.sequence() == bound[0].sequence();
  if (value.dict() != nullptr) return value.dict() == bound[0].dict();
  return equal(meter, value, bound[0]);
}

bool names_filter(Meter&, const Value& value, const Arguments&) {
  return value.text() != nullptr && find_filter(*value.text()) != nullptr;
}
bool names_test(Meter&, const Value& value, const Arguments&) {
  return value.text() != nullptr && find_test(*value.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"iterable", simple<is_iterable>},
    {"sequence", simple<is_sequence>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"lower", test_lower},
    {"upper", test_upper},
    {"even", is_even},
    {"odd", is_odd},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"filter", names_filter},
    {"test", names_test},
    {"eq", compared<Comparison::kEqual>},
    {"equalto", compared<Comparison::kEqual>},
    {"==", compared<Comparison::kEqual>},
    {"ne", compared<Comparison::kNotEqual>},
    {"!=", compared<Comparison::kNotEqual>},
    {"lt", compared<Comparison::kLess>},
    {"lessthan", compared<Comparison::kLess>},
    {"<", compared<Comparison::kLess>},
    {"le", compared<Comparison::kLessEqual>},
    {"<=", compared<Comparison::kLessEqual>},
    {"gt", compared<Comparison::kGreater>},
    {"greaterthan", compared<Comparison::kGreater>},
    {">", compared<Comparison::kGreater>},
    {"ge", compared<Comparison::kGreaterEqual>},
    {">=", compared<Comparison::kGreaterEqual>},
    {"in", compared<Comparison::kIn>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &Test::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace moeloom::jinja
