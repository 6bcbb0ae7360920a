// Python's operators on values.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <compare>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

using Kind = Sequence::Kind;

constexpr const char* kOperatorSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as<Undefined>()) throw Failure(undefined_complaint(*undefined));
}

[[noreturn]] void refuse(Operator op, const Value& left, const Value& right) {
  throw Failure(std::string("unsupported operand type(s) for ") +
                kOperatorSigns[static_cast<std::size_t>(op)] + ": '" + type_name(left) + "' and '" +
                type_name(right) + "'");
}

[[noreturn]] void too_large() {
  throw Failure("an integer does not fit into 128 bits");
}

Integer floor_divided(Integer left, Integer right) {
  if (right == 0) throw Failure("integer division or modulo by zero");
  if (right == -1) {
    Integer result = 0;
    if (__builtin_sub_overflow(Integer{0}, left, &result)) too_large();
    return result;
  }
  const Integer quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Integer remainder_of(Integer left, Integer right) {
  if (right == 0) throw Failure("integer division or modulo by zero");
  if (right == -1) return 0;
  const Integer rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

Integer power_of(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

double float_remainder(double left, double right) {
  if (right == 0) throw Failure("float modulo");
  const double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

/// As CPython's float_floor_div: 1.0 // 0.1 is 9.
double float_floor_divided(double left, double right) {
  if (right == 0) throw Failure("float floor division by zero");
  const double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0 && (right < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value operate_floats(Operator op, double left, double right) {
  switch (op) {
    case Operator::kAdd:
      return left + right;
    case Operator::kSubtract:
      return left - right;
    case Operator::kMultiply:
      return left * right;
    case Operator::kDivide:
      if (right == 0) throw Failure("division by zero");
      return left / right;
    case Operator::kFloorDivide:
      return float_floor_divided(left, right);
    case Operator::kModulo:
      return float_remainder(left, right);
    case Operator::kPower:
      break;
  }
  if (left == 0 && right < 0) throw Failure("0.0 cannot be raised to a negative power");
  const double result = std::pow(left, right);
  if (std::isnan(result) && !std::isnan(left) && !std::isnan(right))
    throw Failure("a power is a complex number");
  if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
    throw Failure("Numerical result out of range");
  return result;
}

Value operate_integers(Operator op, Integer left, Integer right) {
  Integer result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) too_large();
      return integer_value(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) too_large();
      return integer_value(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) too_large();
      return integer_value(result);
    case Operator::kFloorDivide:
      return integer_value(floor_divided(left, right));
    case Operator::kModulo:
      return integer_value(remainder_of(left, right));
    case Operator::kPower:
      if (right >= 0) return integer_value(power_of(left, right));
      break;
    case Operator::kDivide:
      break;
  }
  return operate_floats(op, static_cast<double>(left), static_cast<double>(right));
}

Value repeated(Meter& meter, const Value& value, Integer times) {
  const Text* text = value.as<Text>();
  const Sequence* list = value.sequence();
  const std::size_t size = text != nullptr ? text->bytes->size() : list->items.size() * sizeof(Value);
  constexpr Integer kMost = Integer{1} << 40;
  const auto count = static_cast<std::size_t>(std::clamp<Integer>(times, 0, size == 0 ? 0 : kMost));
  meter.make(size == 0 ? 0
                       : std::max(size, std::size_t{1}) *
                             std::min<std::size_t>(count, (std::size_t{1} << 62) / size));
  if (text != nullptr) {
    std::string result;
    result.reserve(size * count);
    for (std::size_t i = 0; i < count; ++i) result += *text->bytes;
    return text_value(std::move(result), text->safe);
  }
  std::vector<Value> items;
  items.reserve(list->items.size() * count);
  for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), list->items.begin(), list->items.end());
  return sequence_value(std::move(items), list->kind);
}

bool repeats(const Value& value) {
  const Sequence* list = value.sequence();
  return value.text() != nullptr ||
         (list != nullptr && (list->kind == Kind::kList || list->kind == Kind::kTuple));
}

/// Marked + other escapes the other.
Value joined_texts(Meter& meter, const Text& left, const Text& right) {
  const bool safe = left.safe || right.safe;
  meter.make(left.bytes->size() + right.bytes->size());
  std::string text = safe && !left.safe ? escaped(*left.bytes) : *left.bytes;
  text += safe && !right.safe ? escaped(*right.bytes) : *right.bytes;
  return text_value(std::move(text), safe);
}

Value added(Meter& meter, const Value& left, const Value& right) {
  const Text* text = left.as<Text>();
  const Text* other_text = right.as<Text>();
  if (text != nullptr && other_text != nullptr) return joined_texts(meter, *text, *other_text);
  const Sequence* list = left.sequence();
  const Sequence* other = right.sequence();
  if (list != nullptr && other != nullptr && list->kind == other->kind && repeats(left)) {
    meter.make((list->items.size() + other->items.size()) * sizeof(Value));
    std::vector<Value> items = list->items;
    items.insert(items.end(), other->items.begin(), other->items.end());
    return sequence_value(std::move(items), list->kind);
  }
  if (text != nullptr)
    throw Failure(std::string("can only concatenate str (not \"") + type_name(right) + "\") to str");
  refuse(Operator::kAdd, left, right);
}

/// Exact: a double does not hold every integer. Unordered beside NaN.
std::partial_ordering order_of(Integer integer, double number) {
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (std::abs(number) >= 0x1p126 * 2) return 0.0 <=> number;
  const double whole = std::trunc(number);
  const auto other = static_cast<Integer>(whole);
  if (integer != other) return integer < other ? std::partial_ordering::less : std::partial_ordering::greater;
  return whole <=> number;
}

/// Of numbers alone.
std::optional<std::partial_ordering> order_of(const Value& left, const Value& right) {
  Integer a = 0;
  Integer b = 0;
  const double* x = left.as<double>();
  const double* y = right.as<double>();
  const bool integers[] = {left.to_integer(a), right.to_integer(b)};
  if ((x == nullptr && !integers[0]) || (y == nullptr && !integers[1])) return std::nullopt;
  if (x != nullptr && y != nullptr) return *x <=> *y;
  if (x == nullptr && y == nullptr)
    return a < b    ? std::partial_ordering::less
           : a == b ? std::partial_ordering::equivalent
                    : std::partial_ordering::greater;
  return x == nullptr ? order_of(a, *y) : 0 <=> order_of(b, *x);
}

bool equal_items(Meter& meter, const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::ranges::equal(left, right, [&](const Value& a, const Value& b) { return equal(meter, a, b); });
}

bool equal_dicts(Meter& meter, const Dict& left, const Dict& right) {
  if (left.members().size() != right.members().size()) return false;
  return std::ranges::all_of(left.members(), [&](const Dict::Member& member) {
    scan_key(meter, member.first);
    const Value* other = right.find(member.first);
    return other != nullptr && equal(meter, member.second, *other);
  });
}

bool equal_sequences(Meter& meter, const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  if (left.kind != right.kind || left.kind == Kind::kGenerator || left.kind == Kind::kValues) return false;
  return equal_items(meter, left.items, right.items);
}

bool less_items(Meter& meter, const std::vector<Value>& left, const std::vector<Value>& right) {
  const std::size_t shorter = std::min(left.size(), right.size());
  for (std::size_t i = 0; i < shorter; ++i)
    if (!equal(meter, left[i], right[i])) return less(meter, left[i], right[i]);
  return left.size() < right.size();
}

}  // namespace

Value operate(Meter& meter, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kModulo && left.text() != nullptr)
    return text_value(percent_format(meter, *left.as<Text>(), right), left.as<Text>()->safe);
  require_defined(left);
  require_defined(right);
  Integer a = 0;
  Integer b = 0;
  const bool integers[] = {left.to_integer(a), right.to_integer(b)};
  if (integers[0] && integers[1]) return operate_integers(op, a, b);
  double x = 0;
  double y = 0;
  if (left.to_number(x) && right.to_number(y)) return operate_floats(op, x, y);
  if (op == Operator::kMultiply && repeats(left) && integers[1]) return repeated(meter, left, b);
  if (op == Operator::kMultiply && repeats(right) && integers[0]) return repeated(meter, right, a);
  if (op == Operator::kAdd) return added(meter, left, right);
  refuse(op, left, right);
}

Value negative(const Value& value) {
  require_defined(value);
  Integer integer = 0;
  Integer result = 0;
  if (const double* number = value.as<double>()) return -*number;
  if (!value.to_integer(integer))
    throw Failure(std::string("bad operand type for unary -: '") + type_name(value) + "'");
  if (__builtin_sub_overflow(Integer{0}, integer, &result)) too_large();
  return integer_value(result);
}

bool equal(Meter& meter, const Value& left, const Value& right) {
  meter.step();
  if (left.is_undefined() || right.is_undefined()) return left.is_undefined() && right.is_undefined();
  if (const auto order = order_of(left, right)) return *order == 0;
  double number = 0;
  if (left.to_number(number)) return false;
  if (const std::string* text = left.text()) {
    const std::string* other = right.text();
    if (other == nullptr || text->size() != other->size()) return false;
    meter.scan(text->size());
    return *text == *other;
  }
  if (const Sequence* list = left.sequence())
    return right.sequence() != nullptr && equal_sequences(meter, *list, *right.sequence());
  if (const Dict* dict = left.dict())
    return right.dict() != nullptr && (dict == right.dict() || equal_dicts(meter, *dict, *right.dict()));
  if (left.held().index() != right.held().index()) return false;
  if (Namespace* const* space = left.as<Namespace*>()) return *space == *right.as<Namespace*>();
  if (const Macro* const* macro = left.as<const Macro*>()) return *macro == *right.as<const Macro*>();
  if (const auto* loop = left.as<std::shared_ptr<Loop>>()) return *loop == *right.as<std::shared_ptr<Loop>>();
  return left.is_none();
}

bool less(Meter& meter, const Value& left, const Value& right) {
  meter.step();
  require_defined(left);
  require_defined(right);
  if (const auto order = order_of(left, right)) return *order < 0;
  if (left.text() != nullptr && right.text() != nullptr) {
    meter.scan(std::min(left.text()->size(), right.text()->size()));
    return *left.text() < *right.text();
  }
  const Sequence* list = left.sequence();
  const Sequence* other = right.sequence();
  if (list != nullptr && other != nullptr && list->kind == other->kind && repeats(left))
    return less_items(meter, list->items, other->items);
  throw Failure(std::string("'<' not supported between instances of '") + type_name(left) + "' and '" +
                type_name(right) + "'");
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr)
      throw Failure(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
    meter.scan(text->size());
    return find_in(*text, *item.text()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    scan_key(meter, item);
    return dict->find(item) != nullptr;
  }
  if (const Sequence* sequence = container.sequence();
      sequence != nullptr && sequence->kind != Kind::kGenerator)
    return std::ranges::any_of(sequence->items, [&](const Value& each) { return equal(meter, each, item); });
  if (container.sequence() == nullptr)
    throw Failure(std::string("argument of type '") + type_name(container) + "' is not iterable");
  const std::vector<Value> items = iterated(meter, container);
  return std::ranges::any_of(items, [&](const Value& each) { return equal(meter, each, item); });
}

namespace {

/// a <= b is no "not b < a": that would ask for an order of NaN too.
bool ordered(Meter& meter, const Value& low, const Value& high, bool or_equal) {
  return less(meter, low, high) || (or_equal && equal(meter, low, high));
}

}  // namespace

bool compare(Meter& meter, Comparison op, const Value& left, const Value& right) {
  switch (op) {
    case Comparison::kEqual:
      return equal(meter, left, right);
    case Comparison::kNotEqual:
      return !equal(meter, left, right);
    case Comparison::kLess:
      return ordered(meter, left, right, false);
    case Comparison::kLessEqual:
      return ordered(meter, left, right, true);
    case Comparison::kGreater:
      return ordered(meter, right, left, false);
    case Comparison::kGreaterEqual:
      return ordered(meter, right, left, true);
    case Comparison::kIn:
      return contains(meter, right, left);
    case Comparison::kNotIn:
      break;
  }
  return !contains(meter, right, left);
}

std::vector<Value> iterated(Meter& meter, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const Sequence* sequence = value.sequence()) {
    const std::size_t begin = sequence->kind == Kind::kGenerator ? sequence->read : 0;
    meter.make((sequence->items.size() - begin) * sizeof(Value));
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(begin), sequence->items.end());
    if (sequence->kind == Kind::kGenerator) sequence->read = sequence->items.size();
  } else if (const Dict* dict = value.dict()) {
    meter.make(dict->members().size() * sizeof(Value));
    for (const auto& [key, member] : dict->members()) items.push_back(key);
  } else if (const std::string* text = value.text()) {
    constexpr std::size_t kBytesOfOne = sizeof(Value) + 64;  // with the text it points to
    meter.make(count_code_points(*text) * kBytesOfOne);
    for (std::size_t at = 0, begin = 0; at < text->size(); begin = at) {
      next_code_point(*text, at);
      items.push_back(text_value(text->substr(begin, at - begin)));
    }
  } else {
    throw Failure(std::string("'") + type_name(value) + "' object is not iterable");
  }
  return items;
}

std::optional<std::size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return count_code_points(*text);
  if (const Dict* dict = value.dict()) return dict->members().size();
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->kind == Kind::kGenerator) return std::nullopt;
  return sequence->items.size();
}

}  // namespace moeloom::jinja
