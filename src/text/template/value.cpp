#include "value.hpp"

#include <algorithm>
#include <cmath>

#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr int kMostNestedValues = 200;
constexpr std::size_t kFewMembers = 8;  // are faster looked through

/// Equal for keys that Python holds for equal: 1, 1.0 and True.
std::string key_text(const Value& key) {
  if (const std::string* text = key.text()) return "s" + *text;
  Integer integer = 0;
  if (key.to_integer(integer)) return "i" + integer_text(integer);
  if (const double* number = key.as<double>()) {
    if (std::trunc(*number) == *number && std::abs(*number) < 1e38)
      return "i" + integer_text(static_cast<Integer>(*number));
    return "f" + float_text(*number);
  }
  if (key.is_none()) return "n";
  const Sequence* tuple = key.sequence();
  if (tuple == nullptr || tuple->kind != Sequence::Kind::kTuple)
    throw Failure(std::string("unhashable type: '") + type_name(key) + "'");
  std::string text = "t";
  for (const Value& item : tuple->items) {
    const std::string part = key_text(item);
    text += std::to_string(part.size()) + ":" + part;
    if (text.size() > 4096) throw Failure("a tuple as a key is larger than 4096 bytes");
  }
  return text;
}

std::vector<Value> values_of(const JsonValue::Array& array) {
  std::vector<Value> items;
  items.reserve(array.size());
  for (const JsonValue& each : array) items.push_back(value_of(each));
  return items;
}

}  // namespace

const Sequence* Value::sequence() const {
  const SequencePtr* held = as<SequencePtr>();
  return held == nullptr ? nullptr : held->get();
}

const Dict* Value::dict() const {
  const DictPtr* held = as<DictPtr>();
  return held == nullptr ? nullptr : held->get();
}

bool Value::to_integer(Integer& integer) const {
  if (const bool* boolean = as<bool>())
    integer = *boolean ? 1 : 0;
  else if (const Integer* held = as<Integer>())
    integer = *held;
  else
    return false;
  return true;
}

bool Value::to_number(double& number) const {
  Integer integer = 0;
  if (const double* held = as<double>())
    number = *held;
  else if (to_integer(integer))
    number = static_cast<double>(integer);
  else
    return false;
  return true;
}

void Dict::set(Value key, Value value) {
  const int depth = 1 + std::max(depth_of(key), depth_of(value));
  if (depth > kMostNestedValues) throw Failure("values nest too deeply");
  std::string name = key_text(key);
  const auto [place, is_new] = places_.try_emplace(std::move(name), members_.size());
  depth_ = std::max(depth_, depth);
  if (is_new)
    members_.emplace_back(std::move(key), std::move(value));
  else
    members_[place->second].second = std::move(value);
}

const Value* Dict::find(std::string_view key) const {
  if (members_.size() <= kFewMembers) {
    for (const auto& [name, value] : members_)
      if (const std::string* text = name.text(); text != nullptr && *text == key) return &value;
    return nullptr;
  }
  const auto place = places_.find("s" + std::string(key));
  return place == places_.end() ? nullptr : &members_[place->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_undefined()) return nullptr;
  if (const std::string* text = key.text()) return find(std::string_view(*text));
  const auto place = places_.find(key_text(key));
  return place == places_.end() ? nullptr : &members_[place->second].second;
}

void scan_key(Meter& meter, const Value& key) {
  if (const std::string* text = key.text()) return meter.scan(text->size());
  if (const Sequence* tuple = key.sequence(); tuple != nullptr && tuple->kind == Sequence::Kind::kTuple)
    for (const Value& item : tuple->items) scan_key(meter, item);
}

Value text_value(std::string text, bool safe) {
  return Text{std::make_shared<const std::string>(std::move(text)), safe};
}

Value integer_value(Integer integer) {
  return Value(Held(integer));
}

Value sequence_value(std::vector<Value> items, Sequence::Kind kind) {
  Sequence sequence;
  sequence.kind = kind;
  for (const Value& item : items) sequence.depth = std::max(sequence.depth, 1 + depth_of(item));
  if (sequence.depth > kMostNestedValues) throw Failure("values nest too deeply");
  sequence.items = std::move(items);
  return SequencePtr(std::make_shared<const Sequence>(std::move(sequence)));
}

Value dict_value(Dict dict) {
  return DictPtr(std::make_shared<const Dict>(std::move(dict)));
}

Value value_of(const JsonValue& json) {
  if (const bool* boolean = json.boolean()) return *boolean;
  if (const std::int64_t* integer = json.integer()) return integer_value(*integer);
  if (const std::uint64_t* integer = json.large_integer()) return integer_value(*integer);
  if (const double* number = json.number()) return *number;
  if (const std::string* text = json.text()) return text_value(*text);
  if (const JsonValue::Array* array = json.array()) return sequence_value(values_of(*array));
  const JsonValue::Object* object = json.object();
  if (object == nullptr) return kNone;
  Dict dict;
  for (const auto& [key, member] : *object) dict.set(text_value(key), value_of(member));
  return dict_value(std::move(dict));
}

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth();
  if (const Method* method = value.as<Method>()) return 1 + depth_of(*method->self);
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) return 1 + depth_of_loop(**loop);
  return 0;
}

const char* type_name(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined",   "NoneType", "bool",    "int",       "float",
                                           "str",         "list",     "dict",    "Namespace", "Macro",
                                           "LoopContext", "method",   "function"};
  if (const Sequence* sequence = value.sequence()) {
    static constexpr const char* kKinds[] = {"list",        "tuple",      "range",    "dict_keys",
                                             "dict_values", "dict_items", "generator"};
    return kKinds[static_cast<std::size_t>(sequence->kind)];
  }
  if (const Text* text = value.as<Text>(); text != nullptr && text->safe) return "Markup";
  return kNames[value.held().index()];
}

std::string undefined_complaint(const Undefined& value) {
  const std::string name = value.name == nullptr ? "item" : *value.name;
  if (value.refused) return "access to attribute '" + name + "' of '" + value.owner + "' object is unsafe.";
  if (value.owner == nullptr) return "'" + name + "' is undefined";
  return std::string("'") + value.owner + (std::string_view(value.owner) == "dict" ? " object" : "") +
         "' has no attribute '" + name + "'";
}

bool truth(const Value& value) {
  if (const bool* boolean = value.as<bool>()) return *boolean;
  if (const Integer* integer = value.as<Integer>()) return *integer != 0;
  if (const double* number = value.as<double>()) return *number != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const Dict* dict = value.dict()) return !dict->members().empty();
  if (const Sequence* sequence = value.sequence())
    return sequence->kind == Sequence::Kind::kGenerator || !sequence->items.empty();
  return !value.is_undefined() && !value.is_none();
}

}  // namespace moeloom::jinja
