// Attributes, items and slices, arguments of calls.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <charconv>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_list(const Value& value) {
  const Sequence* sequence = value.sequence();
  return sequence != nullptr && sequence->kind == Sequence::Kind::kList;
}

/// What Python has on every object, and the sandbox hides.
bool is_hidden(std::string_view name) {
  return name.starts_with("__") && name.ends_with("__");
}

Value missing(const Value& value, const std::string* name, bool refused = false) {
  return Undefined{name, type_name(value), refused};
}

std::optional<Value> own_attribute(Meter& meter, const Value& value, const std::string& name) {
  if (is_hidden(name)) return missing(value, &name, true);
  if (Namespace* const* space = value.as<Namespace*>()) {
    meter.pass((*space)->members.size());
    for (const auto& [member, held] : (*space)->members)
      if (member == name) return held;
    return std::nullopt;
  }
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) return loop_attribute(*loop, name);
  if (const Macro* const* macro = value.as<const Macro*>()) return macro_attribute(**macro, name);
  if (const Sequence* group = value.sequence(); group != nullptr && group->is_group)
    if (name == "grouper" || name == "list") return group->items[name == "grouper" ? 0 : 1];
  if ((is_list(value) && among(kListChanges, name)) || (value.dict() != nullptr && among(kDictChanges, name)))
    return missing(value, &name, true);
  if (has_method(value, name)) return Method{std::make_shared<const Value>(value), name};
  return std::nullopt;
}

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as<Undefined>()) throw Failure(undefined_complaint(*undefined));
}

/// The place of an index that may count from the end; none outside.
std::optional<std::size_t> place_of(Integer index, std::size_t size) {
  const auto count = static_cast<Integer>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> own_item(Meter& meter, const Value& value, const Value& key) {
  if (const Dict* dict = value.dict()) {
    if (is_list(key) || key.dict() != nullptr) return std::nullopt;
    scan_key(meter, key);
    const Value* member = key.is_undefined() ? nullptr : dict->find(key);
    return member == nullptr ? std::nullopt : std::optional(*member);
  }
  Integer index = 0;
  if (!key.to_integer(index)) return std::nullopt;
  if (const Text* text = value.as<Text>()) {
    meter.scan(text->bytes->size());
    const auto place = place_of(index, count_code_points(*text->bytes));
    if (!place) return std::nullopt;
    const std::size_t begin = byte_of(*text->bytes, *place);
    std::size_t end = begin;
    next_code_point(*text->bytes, end);
    return text_value(text->bytes->substr(begin, end - begin), text->safe);
  }
  using Kind = Sequence::Kind;
  const Sequence* list = value.sequence();
  if (list == nullptr ||
      (list->kind != Kind::kList && list->kind != Kind::kTuple && list->kind != Kind::kRange))
    return std::nullopt;
  const auto place = place_of(index, list->items.size());
  return place ? std::optional(list->items[*place]) : std::nullopt;
}

std::optional<Integer> slice_bound(const Value& value) {
  Integer integer = 0;
  if (value.is_none()) return std::nullopt;
  if (!value.to_integer(integer))
    throw Failure("slice indices must be integers or None or have an __index__ method");
  return integer;
}

/// Places in a sequence of that size, as Python's slice.indices.
std::vector<std::size_t> slice_places(std::size_t size, const Value& begin, const Value& end,
                                      const Value& step) {
  const Integer stride = slice_bound(step).value_or(1);
  if (stride == 0) throw Failure("slice step cannot be zero");
  const auto count = static_cast<Integer>(size);
  const Integer least = stride > 0 ? 0 : -1;
  const Integer most = stride > 0 ? count : count - 1;
  const auto bounded = [&](const Value& bound, Integer otherwise) {
    const std::optional<Integer> given = slice_bound(bound);
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + count : *given, least, most);
  };
  const Integer first = bounded(begin, stride > 0 ? least : most);
  const Integer last = bounded(end, stride > 0 ? most : least);
  std::vector<std::size_t> places;
  const Integer jump = std::clamp<Integer>(stride, -count - 1, count + 1);
  for (Integer at = first; stride > 0 ? at < last : at > last; at += jump)
    places.push_back(static_cast<std::size_t>(at));
  return places;
}

Value text_slice(const Text& text, const Value& begin, const Value& end, const Value& step) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.bytes->size(); next_code_point(*text.bytes, at)) starts.push_back(at);
  const std::vector<std::size_t> places = slice_places(starts.size(), begin, end, step);
  starts.push_back(text.bytes->size());
  std::string part;
  for (const std::size_t place : places)
    part.append(*text.bytes, starts[place], starts[place + 1] - starts[place]);
  return text_value(std::move(part), text.safe);
}

std::string join_names(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace

Value attribute_of(Meter& meter, const Value& value, const std::string& name) {
  require_defined(value);
  if (std::optional<Value> own = own_attribute(meter, value, name)) return *std::move(own);
  if (const Dict* dict = value.dict())
    if (const Value* member = dict->find(std::string_view(name))) return *member;
  return missing(value, &name);
}

Value item_of(Meter& meter, const Value& value, const Value& key) {
  require_defined(value);
  if (std::optional<Value> own = own_item(meter, value, key)) return *std::move(own);
  const std::string* name = key.text();
  if (name == nullptr) return missing(value, nullptr);
  std::optional<Value> attribute = own_attribute(meter, value, *name);
  if (!attribute) return missing(value, nullptr);
  // The name of a key does not outlive the key.
  if (const Undefined* undefined = attribute->as<Undefined>())
    return missing(value, nullptr, undefined->refused);
  return *std::move(attribute);
}

Value slice_of(Meter& meter, const Value& value, const Value& begin, const Value& end, const Value& step) {
  require_defined(value);
  if (const Text* text = value.as<Text>()) {
    meter.make(text->bytes->size() * sizeof(std::size_t));
    return text_slice(*text, begin, end, step);
  }
  using Kind = Sequence::Kind;
  const Sequence* list = value.sequence();
  if (list == nullptr ||
      (list->kind != Kind::kList && list->kind != Kind::kTuple && list->kind != Kind::kRange))
    throw Failure(std::string("'") + type_name(value) + "' object cannot be sliced");
  std::vector<Value> items;
  for (const std::size_t place : slice_places(list->items.size(), begin, end, step))
    items.push_back(list->items[place]);
  meter.make(items.size() * sizeof(Value));
  return sequence_value(std::move(items), list->kind == Kind::kTuple ? Kind::kTuple : Kind::kList);
}

Value attribute_path(Meter& meter, const Value& value, const Value& path) {
  const std::string* names = path.text();
  if (names == nullptr) return item_of(meter, value, path);
  meter.scan(names->size());
  Value result = value;
  for (std::size_t begin = 0; begin <= names->size();) {
    const std::size_t end = std::min(names->find('.', begin), names->size());
    const std::string part = names->substr(begin, end - begin);
    Value key = text_value(part);
    int index = 0;
    const auto [last, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    if (error == std::errc() && last == part.data() + part.size() && part[0] != '-')
      key = integer_value(index);
    result = item_of(meter, result, key);
    begin = end + 1;
  }
  return result;
}

Bound::Bound(const char* function, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : function_(function), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters.size())
    throw Failure(std::string(function) + "() takes at most " + std::to_string(parameters.size()) +
                  " arguments, " + std::to_string(arguments.positional.size()) + " were given");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* place = std::ranges::find(parameters, name);
    if (place == parameters.end())
      throw Failure(std::string(function) + "() got an unexpected keyword argument '" + name +
                    "'; known: " + join_names(parameters));
    const Value*& slot = values_[static_cast<std::size_t>(place - parameters.begin())];
    if (slot != nullptr)
      throw Failure(std::string(function) + "() got multiple values for argument '" + name + "'");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr)
      throw Failure(std::string(function) + "() misses its argument '" + std::string(parameters.begin()[i]) +
                    "'");
}

const Value& Bound::operator[](std::size_t i) const {
  static const Value kUndefined;
  return values_[i] == nullptr ? kUndefined : *values_[i];
}

std::string Bound::text(std::size_t i, std::string_view otherwise) const {
  if (!given(i)) return std::string(otherwise);
  const std::string* text = (*this)[i].text();
  if (text == nullptr) throw Failure(std::string(function_) + "() takes str, not " + type_name((*this)[i]));
  return *text;
}

Integer Bound::integer(std::size_t i, Integer otherwise) const {
  if (!given(i)) return otherwise;
  Integer integer = 0;
  if (!(*this)[i].to_integer(integer))
    throw Failure(std::string(function_) + "() takes int, not " + type_name((*this)[i]));
  return integer;
}

}  // namespace moeloom::jinja
