// Python's two ways to format: text % values and text.format(values).
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "format_spec.hpp"

namespace moeloom::jinja {
namespace {

// ---- text.format ------------------------------------------------------------------------------------------

class BraceFormat {
 public:
  BraceFormat(Meter& meter, const Text& format, const Arguments& arguments)
      : meter_(meter), arguments_(arguments), format_(*format.bytes), escapes_(format.safe) {}

  std::string text() {
    std::string result;
    while (at_ < format_.size()) {
      const char c = format_[at_++];
      if ((c == '{' || c == '}') && at_ < format_.size() && format_[at_] == c) {
        result += c;
        ++at_;
      } else if (c == '{') {
        const std::string part = field();
        meter_.make(part.size());
        result += part;
      } else if (c == '}') {
        throw Failure("Single '}' encountered in format string");
      } else {
        result += c;
      }
    }
    return result;
  }

 private:
  enum class Numbering { kNone, kAutomatic, kManual };

  std::string until(std::string_view ends) {
    const std::size_t begin = at_;
    at_ = std::min(format_.find_first_of(ends, at_), format_.size());
    return format_.substr(begin, at_ - begin);
  }

  char next(const char* otherwise) {
    if (at_ == format_.size()) throw Failure(otherwise);
    return format_[at_++];
  }

  std::string field() {
    Value value = argument(until(".[!:}"));
    char c = next("expected '}' before end of string");
    for (; c == '.' || c == '['; c = next("expected '}' before end of string")) value = part_of(value, c);
    char conversion = 0;
    if (c == '!') {
      conversion = next("end of string while looking for conversion specifier");
      c = next("unmatched '{' in format spec");
    }
    std::string spec;
    if (c == ':') {
      spec = until("{}");
      c = next("expected '}' before end of string");
    }
    if (c != '}') throw Failure("a field of a format string does not end with '}', or holds another");
    if (conversion == 'r')
      value = text_value(repr(meter_, value));
    else if (conversion == 'a')
      value = text_value(ascii(meter_, value));
    else if (conversion == 's')
      value = text_value(str(meter_, value));
    else if (conversion != 0)
      throw Failure(std::string("Unknown conversion specifier ") + conversion);
    const Text* marked = value.as<Text>();
    if (!escapes_ || (marked != nullptr && marked->safe && spec.empty()))
      return formatted(meter_, value, spec);
    if (marked != nullptr && marked->safe) throw Failure("Unsupported format specification for Markup.");
    return escaped(formatted(meter_, value, spec));
  }

  Value argument(const std::string& name) {
    if (name.empty() || name.find_first_not_of("0123456789") == std::string::npos) {
      const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kNone && numbering_ != numbering)
        throw Failure("cannot switch from manual field specification to automatic field numbering");
      numbering_ = numbering;
      std::size_t at = 0;
      const std::size_t place = name.empty() ? next_argument_++ : format_number(name, at);
      if (place < arguments_.positional.size()) return arguments_.positional[place];
      throw Failure("Replacement index " + std::to_string(place) + " out of range for positional args tuple");
    }
    for (const auto& [given, value] : arguments_.named)
      if (given == name) return value;
    throw Failure("no argument '" + name + "' for a format string");
  }

  Value part_of(const Value& value, char kind) {
    const std::string name = until(kind == '.' ? ".[!:}" : "]");
    if (kind == '[') next("Missing ']' in format string");
    // A name of its own would not outlive the value, so attributes are looked up as items are.
    Value key = text_value(name);
    std::size_t at = 0;
    if (kind == '[' && !name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
      key = integer_value(static_cast<Integer>(format_number(name, at)));
    const Value part = item_of(meter_, value, key);
    if (part.is_undefined()) throw Failure("a format string asks for '" + name + "', which is not there");
    return part;
  }

  Meter& meter_;
  const Arguments& arguments_;
  std::string format_;
  bool escapes_;
  std::size_t at_ = 0;
  std::size_t next_argument_ = 0;
  Numbering numbering_ = Numbering::kNone;
};

// ---- text % values ----------------------------------------------------------------------------------------

class PercentFormat {
 public:
  PercentFormat(Meter& meter, const Text& format, const Value& value)
      : meter_(meter), format_(*format.bytes), escapes_(format.safe), value_(value) {
    const Sequence* tuple = value.sequence();
    if (tuple != nullptr && tuple->kind == Sequence::Kind::kTuple)
      values_ = tuple->items;
    else
      values_ = {value};
  }

  std::string text() {
    std::string result;
    while (at_ < format_.size()) {
      const char c = format_[at_++];
      if (c != '%') {
        result += c;
        continue;
      }
      const std::string part = field();
      meter_.make(part.size());
      result += part;
    }
    const bool of_names = value_.dict() != nullptr;
    if (used_ < values_.size() && !of_names)
      throw Failure("not all arguments converted during string formatting");
    return result;
  }

 private:
  char next() {
    if (at_ == format_.size()) throw Failure("incomplete format");
    return format_[at_++];
  }

  Value taken() {
    if (used_ == values_.size()) throw Failure("not enough arguments for format string");
    return values_[used_++];
  }

  std::optional<Value> named() {
    if (at_ == format_.size() || format_[at_] != '(') return std::nullopt;
    const std::size_t end = format_.find(')', at_);
    if (end == std::string::npos) throw Failure("incomplete format key");
    if (value_.dict() == nullptr) throw Failure("format requires a mapping");
    const Value* member = value_.dict()->find(std::string_view(format_).substr(at_ + 1, end - at_ - 1));
    if (member == nullptr) throw Failure("a format string asks for a key that is not there");
    at_ = end + 1;
    return *member;
  }

  std::size_t number() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      Integer asked = 0;
      if (!taken().to_integer(asked)) throw Failure("* wants int");
      return static_cast<std::size_t>(std::clamp<Integer>(asked, 0, kMostWidth));
    }
    return at_ < format_.size() && std::isdigit(static_cast<unsigned char>(format_[at_]))
               ? format_number(format_, at_)
               : 0;
  }

  std::string field() {
    std::optional<Value> value = named();
    Spec spec;
    spec.align = '>';
    char c = next();
    for (; std::string_view("-+ #0").find(c) != std::string_view::npos; c = next()) {
      if (c == '-')
        spec.align = '<';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.fill = "0";
      else
        spec.sign = c;
    }
    --at_;
    spec.width = number();
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = number();
    }
    while (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string_view::npos)
      ++at_;
    spec.type = next();
    if (spec.type == '%') return "%";
    if (!value) value = taken();
    return converted(*value, spec);
  }

  std::string shown(const Value& value, char type) {
    const Text* text = value.as<Text>();
    const std::string result = type == 's'   ? str(meter_, value)
                               : type == 'r' ? repr(meter_, value)
                                             : ascii(meter_, value);
    const bool is_marked = type == 's' && text != nullptr && text->safe;
    return escapes_ && !is_marked ? escaped(result) : result;
  }

  std::string converted(const Value& value, Spec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      spec.fill = " ";
      return padded(meter_, cut_to(shown(value, spec.type), spec.precision), spec, '>');
    }
    if (spec.type == 'c') spec.fill = " ";
    if (spec.type == 'c' && escapes_) throw Failure("%c requires int or char");  // markupsafe's do
    if (spec.type == 'c' && value.text() != nullptr) {
      if (count_code_points(*value.text()) != 1) throw Failure("%c requires int or char");
      return padded(meter_, *value.text(), spec, '>');
    }
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    double number = 0;
    if (std::string_view("dxXofFeEgGc").find(spec.type) == std::string_view::npos)
      throw Failure(std::string("unsupported format character '") + spec.type + "'");
    if (!value.to_number(number))
      throw Failure(std::string("%") + spec.type + " format: a number is required, not " + type_name(value));
    if (spec.fill == "0") {
      if (spec.align == '<')
        spec.fill = " ";
      else
        spec.align = '=';
    }
    return formatted_number(meter_, whole(value, number, spec), spec);
  }

  /// %d cuts a float.
  static Value whole(const Value& value, double number, const Spec& spec) {
    if (spec.type != 'd' || !value.is<double>()) return value;
    if (!(std::abs(number) < 1e30)) throw Failure("cannot convert float to integer");
    return integer_value(static_cast<Integer>(number));
  }

  Meter& meter_;
  const std::string& format_;
  bool escapes_;
  const Value& value_;
  std::vector<Value> values_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

std::size_t format_number(std::string_view format, std::size_t& at) {
  std::size_t number = 0;
  const std::size_t begin = at;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
    number = number * 10 + static_cast<std::size_t>(format[at] - '0');
    if (number > kMostWidth) throw Failure("a format's width is at most " + std::to_string(kMostWidth));
  }
  if (at == begin) throw Failure("Format specifier missing precision");
  return number;
}

std::string percent_format(Meter& meter, const Text& format, const Value& value) {
  meter.make(format.bytes->size());
  return PercentFormat(meter, format, value).text();
}

std::string brace_format(Meter& meter, const Text& format, const Arguments& arguments) {
  meter.make(format.bytes->size());
  return BraceFormat(meter, format, arguments).text();
}

}  // namespace moeloom::jinja
