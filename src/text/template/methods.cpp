// Methods of Python's dict, list, int and float; those of str are in text_methods.cpp. Methods that change
// their object are not here: the sandbox keeps them.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kTupleMethods[] = {"index", "count"};
constexpr std::string_view kIntegerMethods[] = {"bit_length", "conjugate"};
constexpr std::string_view kFloatMethods[] = {"is_integer", "conjugate"};

std::span<const std::string_view> methods_of(const Value& value) {
  using Kind = Sequence::Kind;
  if (value.dict() != nullptr) return kDictMethods;
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind == Kind::kList) return kListMethods;
    if (sequence->kind == Kind::kTuple || sequence->kind == Kind::kRange) return kTupleMethods;
    return {};
  }
  if (value.as<double>() != nullptr) return kFloatMethods;
  Integer integer = 0;
  if (value.to_integer(integer)) return kIntegerMethods;
  return {};
}

Value dict_view(Meter& meter, const Dict& dict, Sequence::Kind kind) {
  meter.make(dict.members().size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(dict.members().size());
  for (const auto& [key, value] : dict.members()) {
    if (kind == Sequence::Kind::kKeys)
      items.push_back(key);
    else if (kind == Sequence::Kind::kValues)
      items.push_back(value);
    else
      items.push_back(sequence_value({key, value}, Sequence::Kind::kTuple));
  }
  return sequence_value(std::move(items), kind);
}

Value call_dict(Meter& meter, const Value& self, const Dict& dict, const std::string& name,
                const Arguments& arguments) {
  if (name == "get") {
    if (!arguments.named.empty()) throw Failure("dict.get() takes no keyword arguments");
    const Bound bound("dict.get", arguments, {"key", "default"}, 1);
    scan_key(meter, bound[0]);
    const Value* member = dict.find(bound[0]);
    if (member != nullptr) return *member;
    return bound.given(1) ? bound[1] : kNone;
  }
  const Bound none(name.c_str(), arguments, {});
  if (name == "items") return dict_view(meter, dict, Sequence::Kind::kItems);
  if (name == "keys") return dict_view(meter, dict, Sequence::Kind::kKeys);
  if (name == "values") return dict_view(meter, dict, Sequence::Kind::kValues);
  return self;
}

Value call_list(Meter& meter, const Value& self, const Sequence& list, const std::string& name,
                const Arguments& arguments) {
  if (name == "copy") return self;
  const Bound bound(name.c_str(), arguments, {"value"}, 1);
  const auto matches = [&](const Value& item) { return equal(meter, item, bound[0]); };
  if (name == "count") return integer_value(std::ranges::count_if(list.items, matches));
  const auto place = std::ranges::find_if(list.items, matches);
  if (place == list.items.end()) throw Failure(repr(meter, bound[0]) + " is not in list");
  return integer_value(place - list.items.begin());
}

Value call_number(const Value& self, const std::string& name, const Arguments& arguments) {
  const Bound none(name.c_str(), arguments, {});
  if (name == "conjugate") return self;
  if (const double* number = self.as<double>())
    return std::isfinite(*number) && std::trunc(*number) == *number;
  Integer integer = 0;
  self.to_integer(integer);
  Integer bits = 0;
  for (; integer != 0; integer /= 2) ++bits;
  return integer_value(bits);
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.text() != nullptr) return has_text_method(name);
  return std::ranges::find(methods_of(value), name) != methods_of(value).end();
}

Value call_method(Meter& meter, const Value& self, const std::string& name, const Arguments& arguments) {
  if (const Text* text = self.as<Text>()) return call_text_method(meter, *text, name, arguments);
  if (const Dict* dict = self.dict()) return call_dict(meter, self, *dict, name, arguments);
  if (const Sequence* list = self.sequence()) return call_list(meter, self, *list, name, arguments);
  if (const auto* loop = self.as<std::shared_ptr<Loop>>())
    return call_loop_method(meter, **loop, name, arguments);
  return call_number(self, name, arguments);
}

Value range_of(Meter& meter, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  Integer begin = 0;
  Integer end = bound.integer(0, 0);
  if (bound.given(1)) {
    begin = end;
    end = bound.integer(1, 0);
  }
  const Integer step = bound.integer(2, 1);
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  constexpr Integer kFar = Integer{1} << 62;
  if (std::max({begin, end, step}) > kFar || std::min({begin, end, step}) < -kFar)
    throw Failure("range() takes integers of 62 bits");
  const Integer distance = step > 0 ? end - begin : begin - end;
  const Integer stride = step > 0 ? step : -step;
  const Integer count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  constexpr Integer kMost = 100'000;
  if (count > kMost)
    throw Failure("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  Sequence range;
  range.kind = Sequence::Kind::kRange;
  meter.make(static_cast<std::size_t>(count) * sizeof(Value));
  for (Integer i = 0; i < count; ++i) range.items.push_back(integer_value(begin + i * step));
  range.shown = "range(" + integer_text(begin) + ", " + integer_text(end) +
                (step == 1 ? "" : ", " + integer_text(step)) + ")";
  return SequencePtr(std::make_shared<const Sequence>(std::move(range)));
}

namespace {

/// %[flags][width][E or O]letter, as the C library has it.
std::size_t conversion_end(const std::string& format, std::size_t begin) {
  std::size_t at = format.find_first_not_of("-_0^#", begin);
  at = format.find_first_not_of("0123456789", std::min(at, format.size()));
  if (at < format.size() && (format[at] == 'E' || format[at] == 'O')) ++at;
  return std::min(at, format.size()) + (at < format.size() ? 1 : 0);
}

std::string clock_part(const std::tm& clock, const std::string& conversion) {
  constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";
  constexpr std::size_t kMostDigits = 3;  // of a width
  const char letter = conversion.back();
  if (conversion == "%z" || conversion == "%Z") return "";  // the clock knows no time zone, as Python's now()
  if (letter == 'f' || letter == 'z' || letter == 'Z' || (letter >= '0' && letter <= '9'))
    throw Failure("strftime_now: " + conversion + " is not implemented");
  if (kKnown.find(letter) == std::string_view::npos) return conversion;
  const std::size_t width = conversion.find_first_of("123456789");
  if (width != std::string::npos && conversion.size() - 1 - width > kMostDigits)
    throw Failure("strftime_now: " + conversion + " is too wide");
  std::array<char, 1024> buffer;
  return {buffer.data(), std::strftime(buffer.data(), buffer.size(), conversion.c_str(), &clock)};
}

}  // namespace

std::string clock_text(Meter& meter, const std::tm& clock, const std::string& format) {
  std::string text;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t end = format[at] == '%' ? conversion_end(format, at + 1) : at + 1;
    const std::string part = format.substr(at, end - at);
    text += part.size() > 1 ? clock_part(clock, part) : part;
    at = end;
  }
  meter.make(text.size());
  return text;
}

}  // namespace moeloom::jinja
