// Python's two ways to format: text % values and text.format(values).
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::size_t kMostWidth = 100'000;

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  std::size_t width = 0;
  bool grouped = false;
  std::optional<std::size_t> precision;
  char type = 0;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec parse_spec(const std::string& text) {
  Spec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    std::size_t behind = 0;
    next_code_point(text, behind);
    if (behind < text.size() && is_align(text[behind])) {
      spec.fill = text.substr(0, behind);
      at = behind;
    }
  }
  const auto next_is = [&](std::string_view letters) {
    return at < text.size() && letters.find(text[at]) != std::string_view::npos;
  };
  if (next_is("<>^=")) spec.align = text[at++];
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) spec.alternate = ++at != 0;
  if (next_is("0")) {
    ++at;
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  if (next_is("123456789")) spec.width = format_number(text, at);
  if (next_is(",_")) spec.grouped = text[at++] == ',';
  if (next_is(".")) spec.precision = format_number(text, ++at);
  if (next_is("sdfFeEgGxXobcn%")) spec.type = text[at++];
  if (at != text.size()) throw Failure("Invalid format specifier '" + text + "'");
  return spec;
}

std::string padded(Meter& meter, std::string text, const Spec& spec, char usual) {
  const std::size_t letters = count_code_points(text);
  if (letters >= spec.width) return text;
  const std::size_t missing = spec.width - letters;
  meter.make(missing * spec.fill.size());
  const char align = spec.align == 0 ? usual : spec.align;
  std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string result;
  std::size_t sign = 0;
  if (align == '=') {
    sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    result = text.substr(0, sign);
  }
  for (std::size_t i = 0; i < left; ++i) result += spec.fill;
  result += text.substr(sign);
  for (; left < missing; ++left) result += spec.fill;
  return result;
}

std::string with_groups(const std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string text;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text + digits.substr(whole);
}

std::string digits_in(Integer number, unsigned base, bool capital) {
  std::string text;
  for (; number > 0; number /= base)
    text += (capital ? "0123456789ABCDEF" : "0123456789abcdef")[static_cast<std::size_t>(number % base)];
  if (text.empty()) text = "0";
  std::ranges::reverse(text);
  return text;
}

std::string printed_float(double number, const char* type, std::size_t precision, bool alternate) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : "inf";
  std::string format = alternate ? "%#.*" : "%.*";
  format += type;
  std::vector<char> buffer(precision + 400);
  const int length =
      std::snprintf(buffer.data(), buffer.size(), format.c_str(), static_cast<int>(precision), number);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string float_digits(double number, const Spec& spec) {
  if (spec.type == 0 && !spec.precision) return float_text(number);
  const std::size_t precision = spec.precision.value_or(6);
  if (spec.type == '%') return printed_float(number * 100, "f", precision, false) + "%";
  const char type[] = {spec.type == 0 || spec.type == 'n' ? 'g' : spec.type, 0};
  return printed_float(number, type, precision, spec.alternate);
}

std::string integer_digits(Integer number, const Spec& spec) {
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16
                        : spec.type == 'o'                   ? 8
                        : spec.type == 'b'                   ? 2
                                                             : 10;
  std::string text = base == 10 ? integer_text(number) : digits_in(number, base, spec.type == 'X');
  if (spec.alternate && base != 10) text = std::string("0") + spec.type + text;
  return text;
}

std::string signed_text(bool negative, std::string digits, const Spec& spec) {
  if (spec.grouped) digits = with_groups(digits);
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

std::string formatted_number(const Value& value, const Spec& spec) {
  Integer integer = 0;
  const bool floats = spec.type != 0 && std::string_view("fFeEgG%").find(spec.type) != std::string_view::npos;
  if (value.to_integer(integer) && !floats) {
    if (spec.type == 'c') {
      std::string letter;
      if (integer < 0 || integer > 0x10FFFF || (integer >= 0xD800 && integer < 0xE000))
        throw Failure("%c arg not in range(0x110000)");
      append_utf8(letter, static_cast<char32_t>(integer));
      return letter;
    }
    constexpr Integer kLeast = Integer{1} << 126;
    if (integer < -kLeast) throw Failure("an integer is too large for a format");
    return signed_text(integer < 0, integer_digits(integer < 0 ? -integer : integer, spec), spec);
  }
  double number = 0;
  value.to_number(number);
  if (spec.type != 0 && !floats && spec.type != 'n')
    throw Failure(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
  return signed_text(std::signbit(number), float_digits(std::abs(number), spec), spec);
}

std::string cut_to(std::string text, const std::optional<std::size_t>& letters) {
  if (!letters) return text;
  std::size_t at = 0;
  for (std::size_t i = 0; i < *letters && at < text.size(); ++i) next_code_point(text, at);
  return text.substr(0, at);
}

std::string formatted(Meter& meter, const Value& value, const std::string& format) {
  if (format.empty()) return str(meter, value);
  const Spec spec = parse_spec(format);
  double number = 0;
  if (value.text() == nullptr && !(value.is<bool>() && spec.type == 0) && value.to_number(number))
    return padded(meter, formatted_number(value, spec), spec, '>');
  if (value.text() == nullptr && !value.is<bool>() && !value.is_undefined())
    throw Failure(std::string("unsupported format string passed to ") + type_name(value) + ".__format__");
  if (spec.type != 0 && spec.type != 's')
    throw Failure(std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
  return padded(meter, cut_to(str(meter, value), spec.precision), spec, '<');
}

// ---- text.format ------------------------------------------------------------------------------------------

class BraceFormat {
 public:
  BraceFormat(Meter& meter, const std::string& format, const Arguments& arguments)
      : meter_(meter), arguments_(arguments), format_(format) {}

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
    if (conversion == 'r' || conversion == 'a')
      value = text_value(repr(meter_, value));
    else if (conversion == 's')
      value = text_value(str(meter_, value));
    else if (conversion != 0)
      throw Failure(std::string("Unknown conversion specifier ") + conversion);
    return formatted(meter_, value, spec);
  }

  Value argument(const std::string& name) {
    if (name.empty() || name.find_first_not_of("0123456789") == std::string::npos) {
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
  std::size_t at_ = 0;
  std::size_t next_argument_ = 0;
};

// ---- text % values ----------------------------------------------------------------------------------------

class PercentFormat {
 public:
  PercentFormat(Meter& meter, const std::string& format, const Value& value)
      : meter_(meter), format_(format), value_(value) {
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

  std::string converted(const Value& value, Spec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      spec.fill = " ";
      return padded(meter_,
                    cut_to(spec.type == 's' ? str(meter_, value) : repr(meter_, value), spec.precision), spec,
                    '>');
    }
    if (spec.type == 'c' && value.text() != nullptr) return padded(meter_, *value.text(), spec, '>');
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
    return padded(meter_, formatted_number(whole(value, number, spec), spec), spec, '>');
  }

  /// %d cuts a float.
  static Value whole(const Value& value, double number, const Spec& spec) {
    if (spec.type != 'd' || !value.is<double>()) return value;
    if (!(std::abs(number) < 1e30)) throw Failure("cannot convert float to integer");
    return integer_value(static_cast<Integer>(number));
  }

  Meter& meter_;
  const std::string& format_;
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

std::string percent_format(Meter& meter, const std::string& format, const Value& value) {
  meter.make(format.size());
  return PercentFormat(meter, format, value).text();
}

std::string brace_format(Meter& meter, const std::string& format, const Arguments& arguments) {
  meter.make(format.size());
  return BraceFormat(meter, format, arguments).text();
}

}  // namespace moeloom::jinja
