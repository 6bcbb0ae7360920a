// Python's str, repr and json.dumps.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

void append_hex(std::string& text, std::string_view lead, std::uint32_t number, int digits) {
  text += lead;
  for (int place = 4 * (digits - 1); place >= 0; place -= 4) text += kHex[number >> place & 15U];
}

/// Digits of the shortest number that reads back, and the power of ten of the first.
std::pair<std::string, int> shortest_digits(double number) {
  char buffer[32];
  const char* const end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t cut = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, cut))
    if (c != '.') digits += c;
  int power = 0;
  const std::string_view exponent = text.substr(cut + (text[cut + 1] == '+' ? 2 : 1));
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), power);
  return {digits, power};
}

/// As Python's backslashreplace.
void append_escaped(std::string& text, std::uint32_t number) {
  if (number < 0x100)
    append_hex(text, "\\x", number, 2);
  else if (number < 0x10000)
    append_hex(text, "\\u", number, 4);
  else
    append_hex(text, "\\U", number, 8);
}

void append_quoted_letter(std::string& text, char32_t letter, char quote) {
  const auto number = static_cast<std::uint32_t>(letter);
  if (letter == static_cast<char32_t>(quote) || letter == '\\')
    (text += '\\') += static_cast<char>(letter);
  else if (letter == '\n')
    text += "\\n";
  else if (letter == '\r')
    text += "\\r";
  else if (letter == '\t')
    text += "\\t";
  else if (is_printable(letter))
    append_utf8(text, letter);
  else
    append_escaped(text, number);
}

std::string python_quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) append_quoted_letter(result, next_code_point(text, at), quote);
  return result += quote;
}

/// Appends what repr gives, counting what is made: a value that holds another many times prints it as often.
class Printer {
 public:
  explicit Printer(Meter& meter) : meter_(meter) {}

  void print(const Value& value) {
    meter_.step();
    if (const Text* text = value.as<Text>())
      put(text->safe ? "Markup(" + python_quoted(*text->bytes) + ")" : python_quoted(*text->bytes));
    else if (const Sequence* sequence = value.sequence())
      print(*sequence);
    else if (const Dict* dict = value.dict())
      print(*dict);
    else if (Namespace* const* space = value.as<Namespace*>())
      print(**space);
    else
      put(of_simple(value));
  }
  std::string text() && { return std::move(text_); }

 private:
  void put(std::string_view part) {
    meter_.make(part.size());
    text_ += part;
  }

  static std::string of_simple(const Value& value) {
    Integer integer = 0;
    if (const bool* boolean = value.as<bool>()) return *boolean ? "True" : "False";
    if (value.to_integer(integer)) return integer_text(integer);
    if (const double* number = value.as<double>()) return float_text(*number);
    if (value.is_none()) return "None";
    if (value.is_undefined()) return "Undefined";
    return std::string("<") + type_name(value) + ">";
  }

  void print_items(const Sequence& sequence) {
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) put(", ");
      first = false;
      print(item);
    }
  }

  void print(const Sequence& sequence) {
    using Kind = Sequence::Kind;
    switch (sequence.kind) {
      case Kind::kRange:
        return put(sequence.shown);
      case Kind::kGenerator:
        return put("<generator object>");
      case Kind::kList:
        put("[");
        break;
      case Kind::kTuple:
        put("(");
        break;
      case Kind::kKeys:
        put("dict_keys([");
        break;
      case Kind::kValues:
        put("dict_values([");
        break;
      case Kind::kItems:
        put("dict_items([");
        break;
    }
    print_items(sequence);
    if (sequence.kind == Kind::kTuple)
      put(sequence.items.size() == 1 ? ",)" : ")");
    else
      put(sequence.kind == Kind::kList ? "]" : "])");
  }

  void print(const Dict& dict) {
    put("{");
    bool first = true;
    for (const auto& [key, value] : dict.members()) {
      if (!first) put(", ");
      first = false;
      print(key);
      put(": ");
      print(value);
    }
    put("}");
  }

  void print(const Namespace& space) {
    if (++spaces_ > 50) throw Failure("namespaces hold one another too deeply to be printed");
    put("<Namespace {");
    bool first = true;
    for (const auto& [name, value] : space.members) {
      if (!first) put(", ");
      first = false;
      put(python_quoted(name) + ": ");
      print(value);
    }
    put("}>");
    --spaces_;
  }

  Meter& meter_;
  std::string text_;
  int spaces_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

  void write(const Value& value, std::size_t level) {
    meter_.step();
    if (const std::string* text = value.text()) return write_text(*text);
    if (const Dict* dict = value.dict()) return write_dict(*dict, level);
    const Sequence* sequence = value.sequence();
    using Kind = Sequence::Kind;
    if (sequence != nullptr && (sequence->kind == Kind::kList || sequence->kind == Kind::kTuple))
      return write_list(sequence->items, level);
    put(simple(value));
  }
  std::string text() && { return std::move(text_); }

 private:
  void put(std::string_view part) {
    meter_.make(part.size());
    text_ += part;
  }

  static std::string simple(const Value& value) {
    Integer integer = 0;
    if (const bool* boolean = value.as<bool>()) return *boolean ? "true" : "false";
    if (value.is_none()) return "null";
    if (value.to_integer(integer)) return integer_text(integer);
    const double* number = value.as<double>();
    if (number == nullptr)
      throw Failure(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number < 0 ? "-Infinity" : "Infinity";
    return float_text(*number);
  }

  void write_letter(std::string& part, char32_t letter) const {
    const auto number = static_cast<std::uint32_t>(letter);
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    constexpr std::string_view kNames = "\"\\nrtbf";
    const std::size_t place = number < 0x80 ? kShort.find(static_cast<char>(letter)) : std::string_view::npos;
    if (place != std::string_view::npos) {
      (part += '\\') += kNames[place];
    } else if (number < 0x20 || (style_.ensure_ascii && number >= 0x7F && number < 0x10000)) {
      append_hex(part, "\\u", number, 4);
    } else if (style_.ensure_ascii && number >= 0x10000) {
      append_hex(part, "\\u", 0xD800 + ((number - 0x10000) >> 10), 4);
      append_hex(part, "\\u", 0xDC00 + ((number - 0x10000) & 0x3FF), 4);
    } else {
      append_utf8(part, letter);
    }
  }

  void write_text(std::string_view text) {
    std::string part = "\"";
    for (std::size_t at = 0; at < text.size();) write_letter(part, next_code_point(text, at));
    put(part += '"');
  }

  void new_line(std::size_t level) {
    if (!style_.indent) return;
    put("\n");
    for (std::size_t i = 0; i < level; ++i) put(*style_.indent);
  }

  void write_list(const std::vector<Value>& items, std::size_t level) {
    if (items.empty()) return put("[]");
    put("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  static std::string key_text(const Value& key) {
    const std::string* text = key.text();
    if (text != nullptr) return *text;
    if (key.sequence() != nullptr)
      throw Failure(std::string("keys must be str, int, float, bool or None, not ") + type_name(key));
    return simple(key);
  }

  std::vector<const Dict::Member*> in_order(const Dict& dict) {
    std::vector<const Dict::Member*> members;
    for (const Dict::Member& member : dict.members()) members.push_back(&member);
    if (style_.sort_keys)
      std::ranges::stable_sort(
          members, [&](const auto* a, const auto* b) { return less(meter_, a->first, b->first); });
    return members;
  }

  void write_dict(const Dict& dict, std::size_t level) {
    if (dict.members().empty()) return put("{}");
    put("{");
    bool first = true;
    for (const Dict::Member* member : in_order(dict)) {
      if (!first) put(style_.item_separator);
      first = false;
      new_line(level + 1);
      write_text(key_text(member->first));
      put(style_.key_separator);
      write(member->second, level + 1);
    }
    new_line(level);
    put("}");
  }

  Meter& meter_;
  const JsonStyle& style_;
  std::string text_;
};

}  // namespace

std::string integer_text(Integer integer) {
  if (integer == 0) return "0";
  __extension__ using Unsigned = unsigned __int128;
  Unsigned rest = integer < 0 ? -static_cast<Unsigned>(integer) : static_cast<Unsigned>(integer);
  std::string text;
  for (; rest > 0; rest /= 10) text += static_cast<char>('0' + static_cast<int>(rest % 10));
  if (integer < 0) text += '-';
  std::ranges::reverse(text);
  return text;
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  if (number == 0) return std::signbit(number) ? "-0.0" : "0.0";
  auto [digits, power] = shortest_digits(std::abs(number));
  const std::string sign = number < 0 ? "-" : "";
  if (power < -4 || power >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    const std::string exponent = std::to_string(std::abs(power));
    return sign + digits + (power < 0 ? "e-" : "e+") + (exponent.size() < 2 ? "0" : "") + exponent;
  }
  if (power < 0) return sign + "0." + std::string(static_cast<std::size_t>(-power - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(power) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.insert(whole, ".");
}

std::string str(Meter& meter, const Value& value) {
  if (value.is_undefined()) return "";
  if (const std::string* text = value.text()) {
    meter.make(text->size());
    return *text;
  }
  return repr(meter, value);
}

std::string repr(Meter& meter, const Value& value) {
  Printer printer(meter);
  printer.print(value);
  return std::move(printer).text();
}

std::string ascii(Meter& meter, const Value& value) {
  const std::string shown = repr(meter, value);
  std::string result;
  for (std::size_t at = 0; at < shown.size();) {
    const char32_t letter = next_code_point(shown, at);
    if (letter < 0x80)
      result += static_cast<char>(letter);
    else
      append_escaped(result, static_cast<std::uint32_t>(letter));
  }
  meter.make(result.size());
  return result;
}

std::string json_text(Meter& meter, const Value& value, const JsonStyle& style) {
  JsonWriter writer(meter, style);
  writer.write(value, 0);
  return std::move(writer).text();
}

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&#34;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += c;
  }
  return result;
}

}  // namespace moeloom::jinja
