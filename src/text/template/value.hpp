// Values of a template: Python's, as far as templates meet them. None changes once it is made, but a
// namespace and how far a generator has been read.
#pragma once

#include "moeloom/io/json_value.hpp"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace moeloom::jinja {

/// What stops a render; chat_template.cpp adds file and line. `raised`: raise_exception said it.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& text, bool raised = false)
      : std::runtime_error(text), raised_(raised) {}
  bool raised() const { return raised_; }

 private:
  bool raised_;
};

// Python's integers have no end; ours is an error. 64 bits would not hold every integer that JSON has.
__extension__ typedef __int128 Integer;

class Value;
struct Sequence;
class Dict;
struct Namespace;
struct Macro;
struct Loop;

/// `owner`: whose attribute it would be; none: a variable. `refused`: it is there, and the sandbox keeps it.
struct Undefined {
  const std::string* name = nullptr;  // in the syntax tree
  const char* owner = nullptr;
  bool refused = false;
};
/// `safe`: marked by the filter of that name.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool safe = false;
};
struct Method {
  std::shared_ptr<const Value> self;
  std::string name;
};
/// The last three are there, and refused where they are called.
enum class Function { kRange, kDict, kNamespace, kRaise, kClock, kCycler, kJoiner, kLipsum };

using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
// What can hold itself belongs to the renderer, or it would never be freed.
using Held = std::variant<Undefined, std::monostate, bool, Integer, double, Text, SequencePtr, DictPtr,
                          Namespace*, const Macro*, std::shared_ptr<Loop>, Method, Function>;

class Value {
 public:
  Value() = default;  // undefined
  template <typename T>
  requires std::is_constructible_v<Held, T&&> &&
      (!std::is_same_v<std::remove_cvref_t<T>, Value>)Value(T&& held)
      : held_(std::forward<T>(held)) {}

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<std::monostate>(); }
  const std::string* text() const {
    const Text* held = as<Text>();
    return held == nullptr ? nullptr : held->bytes.get();
  }
  const Sequence* sequence() const;
  const Dict* dict() const;
  /// A boolean is an integer too, as in Python.
  bool to_integer(Integer& integer) const;
  bool to_number(double& number) const;

  const Held& held() const { return held_; }

 private:
  Held held_;
};

inline const Value kNone = std::monostate{};

struct Sequence {
  enum class Kind { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
  std::string shown;             // a range's
  bool is_group = false;         // a tuple of groupby: it has names too
  mutable std::size_t read = 0;  // a generator gives each item once
};

class Dict {
 public:
  using Member = std::pair<Value, Value>;
  /// A key that is there keeps its place. Throws Failure for a key that Python cannot hash.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Member>& members() const { return members_; }
  int depth() const { return depth_; }

 private:
  std::vector<Member> members_;
  std::unordered_map<std::string, std::size_t> places_;
  int depth_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

/// What a render may still do. Each function takes from it and throws Failure when nothing is left.
class Meter {
 public:
  Meter(std::size_t steps, std::size_t bytes) : steps_(steps), bytes_(bytes) {}
  void step() { take(steps_, 1, "the template takes more steps than a render may"); }
  /// Reading so many bytes.
  void scan(std::size_t bytes) {
    take(steps_, 1 + bytes / 512, "the template takes more steps than a render may");
  }
  /// Passing so many names in search of one.
  void pass(std::size_t names) {
    take(steps_, names / 64, "the template takes more steps than a render may");
  }
  /// Making so many.
  void make(std::size_t bytes) { take(bytes_, bytes, "the template makes more text than a render may"); }

 private:
  static void take(std::size_t& left, std::size_t wanted, const char* complaint) {
    if (wanted > left) throw Failure(complaint);
    left -= wanted;
  }
  std::size_t steps_;
  std::size_t bytes_;
};

Value text_value(std::string text, bool safe = false);
/// Throws Failure where values nest deeper than 200.
Value sequence_value(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::kList);
Value dict_value(Dict dict);
Value integer_value(Integer integer);
Value value_of(const JsonValue& json);

/// "str", "NoneType", "dict": as Python's messages have it.
const char* type_name(const Value& value);
/// What Python says when an undefined value is used.
std::string undefined_complaint(const Undefined& value);
/// Before a dict looks for the key, whose texts it copies and hashes.
void scan_key(Meter& meter, const Value& key);
bool truth(const Value& value);
int depth_of(const Value& value);

}  // namespace moeloom::jinja
