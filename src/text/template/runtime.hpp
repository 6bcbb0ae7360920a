// What evaluating is made of: Python's printing, operators, attributes and methods, Jinja's filters and
// tests. None of it knows the syntax tree.
#pragma once

#include <ctime>
#include <initializer_list>
#include <optional>
#include <span>

#include "value.hpp"

namespace moeloom::jinja {

// ---- printing ---------------------------------------------------------------------------------------------

std::string integer_text(Integer integer);
/// As Python's repr: "1.0", "1e-07", "inf".
std::string float_text(double number);
/// Python's str; nothing for what is undefined.
std::string str(Meter& meter, const Value& value);
std::string repr(Meter& meter, const Value& value);
/// repr with escapes for what is outside of ASCII.
std::string ascii(Meter& meter, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; none: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// Python's json.dumps. Throws Failure for what JSON does not have.
std::string json_text(Meter& meter, const Value& value, const JsonStyle& style);

/// With &, <, >, " and ' as entities.
std::string escaped(std::string_view text);

/// Before work on each code point, which takes longer than a look at each byte.
inline void scan_letters(Meter& meter, std::string_view text) {
  meter.scan(8 * text.size());
}

// ---- operators --------------------------------------------------------------------------------------------

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

Value operate(Meter& meter, Operator op, const Value& left, const Value& right);
Value negative(const Value& value);
bool compare(Meter& meter, Comparison op, const Value& left, const Value& right);
bool equal(Meter& meter, const Value& left, const Value& right);
/// Python's <. Throws Failure for values without an order between them.
bool less(Meter& meter, const Value& left, const Value& right);
bool contains(Meter& meter, const Value& container, const Value& item);

/// What iterating gives: items, keys, code points; a generator's are then gone. Throws Failure for the rest.
std::vector<Value> iterated(Meter& meter, const Value& value);
/// Python's len; none where it has none.
std::optional<std::size_t> length_of(const Value& value);

// ---- attributes and calls ---------------------------------------------------------------------------------

/// value.name: attribute first, then item. Throws Failure for an undefined value. `name` outlives the result.
Value attribute_of(Meter& meter, const Value& value, const std::string& name);
/// value[key]: item first, then attribute.
Value item_of(Meter& meter, const Value& value, const Value& key);
Value slice_of(Meter& meter, const Value& value, const Value& begin, const Value& end, const Value& step);
/// The parts of "a.b.0", for filters that take an attribute by such a name, or by an integer.
Value attribute_path(Meter& meter, const Value& value, const Value& path);

Value loop_attribute(const std::shared_ptr<Loop>& loop, const std::string& name);
int depth_of_loop(const Loop& loop);
std::optional<Value> macro_attribute(const Macro& macro, const std::string& name);

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments in the order of a function's parameters; those that were not given are undefined and `given`
/// says so.
class Bound {
 public:
  /// Throws Failure for too few, too many, and names that are not there.
  Bound(const char* function, const Arguments& arguments, std::initializer_list<std::string_view> parameters,
        std::size_t required = 0);
  bool given(std::size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](std::size_t i) const;
  bool flag(std::size_t i, bool otherwise) const { return given(i) ? truth((*this)[i]) : otherwise; }
  /// Throws Failure where it is no text.
  std::string text(std::size_t i, std::string_view otherwise) const;
  Integer integer(std::size_t i, Integer otherwise) const;

 private:
  const char* function_;
  std::vector<const Value*> values_;
};

bool has_method(const Value& value, std::string_view name);
Value call_method(Meter& meter, const Value& self, const std::string& name, const Arguments& arguments);
Value call_text_method(Meter& meter, const Text& self, const std::string& name, const Arguments& arguments);
Value call_loop_method(Meter& meter, Loop& loop, const std::string& name, const Arguments& arguments);
bool has_text_method(std::string_view name);

/// text % value, and text.format(...). A marked text escapes what is put into it.
std::string percent_format(Meter& meter, const Text& format, const Value& value);
std::string brace_format(Meter& meter, const Text& format, const Arguments& arguments);
/// The number in a format's text, at most 100,000: what it asks for is then made.
std::size_t format_number(std::string_view format, std::size_t& at);

Value range_of(Meter& meter, const Arguments& arguments);
std::string clock_text(Meter& meter, const std::tm& clock, const std::string& format);

// ---- filters and tests ------------------------------------------------------------------------------------

struct Filter {
  std::string_view name;
  Value (*apply)(Meter& meter, const Value& value, const Arguments& arguments);
};
struct Test {
  std::string_view name;
  bool (*holds)(Meter& meter, const Value& value, const Arguments& arguments);
};
/// None where Jinja has none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
std::span<const Filter> text_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> selecting_filters();
std::span<const Filter> number_filters();

}  // namespace moeloom::jinja
