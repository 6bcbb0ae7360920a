// Filters that give texts.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <limits>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

/// The value as a text that keeps its mark.
Text soft_text(Meter& meter, const Value& value) {
  if (const Text* text = value.as<Text>()) return *text;
  return {std::make_shared<const std::string>(str(meter, value)), false};
}

Value made(Meter& meter, std::string text, bool safe = false) {
  meter.make(text.size());
  return text_value(std::move(text), safe);
}

template <std::string (*Map)(std::string_view)>
Value mapped(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("a filter of letters", arguments, {});
  const Text text = soft_text(meter, value);
  scan_letters(meter, *text.bytes);
  return made(meter, Map(*text.bytes), text.safe);
}

bool begins_word_behind(char32_t letter) {
  return letter == '-' || letter == '(' || letter == '{' || letter == '[' || letter == '<' ||
         is_python_space(letter);
}

/// Another title than Python's: "it's" stays one word.
Value title(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("title", arguments, {});
  const std::string text = str(meter, value);
  scan_letters(meter, text);
  std::string result;
  bool begins = true;
  for (std::size_t at = 0, begin = 0; at < text.size(); begin = at) {
    const char32_t letter = next_code_point(text, at);
    const std::string_view one = std::string_view(text).substr(begin, at - begin);
    result += begins ? upper(one) : lower(one);
    begins = begins_word_behind(letter);
  }
  return made(meter, std::move(result));
}

Value trim(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Text text = soft_text(meter, value);
  Arguments letters;
  if (bound.given(0)) letters.positional = {bound[0]};
  return call_text_method(meter, text, "strip", letters);
}

Value string(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("string", arguments, {});
  return soft_text(meter, value);
}

Value safe(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("safe", arguments, {});
  return made(meter, str(meter, value), true);
}

Value escape(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("escape", arguments, {});
  const Text text = soft_text(meter, value);
  return text.safe ? Value(text) : made(meter, escaped(*text.bytes), true);
}

Value force_escape(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("forceescape", arguments, {});
  return made(meter, escaped(str(meter, value)), true);
}

Value replace(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = str(meter, value);
  const std::string part = str(meter, bound[0]);
  const std::string by = str(meter, bound[1]);
  const bool all = !bound.given(2) || bound[2].is_none() || bound.integer(2, -1) < 0;
  meter.scan(text.size());
  meter.make(text.size() + count_in(text, part) * by.size());
  return text_value(replaced(
      text, part, by,
      all ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(bound.integer(2, 0))));
}

Value join(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.given(0) ? str(meter, bound[0]) : "";
  std::string text;
  bool first = true;
  for (const Value& item : iterated(meter, value)) {
    const bool has_path = bound.given(1) && !bound[1].is_none();
    const std::string part = str(meter, has_path ? attribute_path(meter, item, bound[1]) : item);
    meter.make(part.size() + separator.size());
    if (!first) text += separator;
    first = false;
    text += part;
  }
  return text_value(std::move(text));
}

Value tojson(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  Integer spaces = 0;
  if (bound[1].to_integer(spaces))
    style.indent = std::string(static_cast<std::size_t>(std::clamp<Integer>(spaces, 0, 1000)), ' ');
  else if (bound[1].text() != nullptr)
    style.indent = *bound[1].text();
  else if (bound.given(1) && !bound[1].is_none())
    throw Failure("tojson(indent) takes int or str");
  if (style.indent) style.item_separator = ",";
  if (bound.given(2) && !bound[2].is_none()) {
    const std::vector<Value> parts = iterated(meter, bound[2]);
    if (parts.size() != 2 || parts[0].text() == nullptr || parts[1].text() == nullptr)
      throw Failure("tojson(separators) takes two texts");
    style.item_separator = *parts[0].text();
    style.key_separator = *parts[1].text();
  }
  return text_value(json_text(meter, value, style));
}

Value format(Meter& meter, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw Failure("can't handle positional and keyword arguments at the same time");
  const Text text = soft_text(meter, value);
  Dict named;
  for (const auto& [name, given] : arguments.named) named.set(text_value(name), given);
  const Value values = arguments.named.empty() ? sequence_value(arguments.positional, Sequence::Kind::kTuple)
                                               : dict_value(std::move(named));
  return text_value(percent_format(meter, text, values), text.safe);
}

/// A line behind which the next is indented, and whether it holds more than spaces.
Value indent(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (value.text() == nullptr) throw Failure(std::string("indent() takes str, not ") + type_name(value));
  const Text text = *value.as<Text>();
  std::string margin;
  if (bound[0].text() != nullptr)
    margin = *bound[0].text();
  else
    margin = std::string(static_cast<std::size_t>(std::clamp<Integer>(bound.integer(0, 4), 0, 100'000)), ' ');
  const Value lines = call_text_method(
      meter, {std::make_shared<const std::string>(*text.bytes + "\n"), false}, "splitlines", {});
  std::string result = bound.flag(1, false) ? margin : "";
  bool first = true;
  for (const Value& line : lines.sequence()->items) {
    const bool indented = !first && (bound.flag(2, false) || !line.text()->empty());
    meter.make(line.text()->size() + margin.size() + 1);
    if (!first) result += '\n';
    if (indented) result += margin;
    result += *line.text();
    first = false;
  }
  return text_value(std::move(result), text.safe);
}

Value center(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  return call_text_method(meter, soft_text(meter, value), "center",
                          {{integer_value(bound.integer(0, 80))}, {}});
}

Value truncate(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Integer length = bound.integer(0, 255);
  const std::string end = bound.text(2, "...");
  const Integer leeway = bound.given(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  const auto end_letters = static_cast<Integer>(count_code_points(end));
  if (length < end_letters || leeway < 0) throw Failure("truncate() needs a length of at least its end's");
  const std::optional<std::size_t> letters = length_of(value);
  if (!letters) throw Failure(std::string("object of type '") + type_name(value) + "' has no len()");
  if (static_cast<Integer>(*letters) <= length + leeway) return value;
  const Text* text = value.as<Text>();
  if (text == nullptr) throw Failure(std::string("truncate() takes str, not ") + type_name(value));
  std::string cut =
      text->bytes->substr(0, byte_of(*text->bytes, static_cast<std::size_t>(length - end_letters)));
  if (!bound.flag(1, false)) cut = cut.substr(0, std::min(cut.rfind(' '), cut.size()));
  return operate(meter, Operator::kAdd, text_value(std::move(cut), text->safe),
                 bound.given(2) ? bound[2] : text_value(end));
}

Value url_encode(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("urlencode", arguments, {});
  if (value.dict() != nullptr || value.sequence() != nullptr)
    throw Failure("urlencode is implemented for texts alone");
  std::string result;
  for (const char c : str(meter, value)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    constexpr std::string_view kHex = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    if (plain)
      result += c;
    else
      ((result += '%') += kHex[byte >> 4]) += kHex[byte & 15];
  }
  return made(meter, std::move(result));
}

Value word_count(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("wordcount", arguments, {});
  Integer words = 0;
  bool inside = false;
  const std::string text = str(meter, value);
  scan_letters(meter, text);
  for (std::size_t at = 0; at < text.size();) {
    const char32_t letter = next_code_point(text, at);
    const bool is_word = is_letter(letter) || is_numeric(letter) || letter == '_';
    if (is_word && !inside) ++words;
    inside = is_word;
  }
  return integer_value(words);
}

constexpr Filter kTextFilters[] = {
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalized>},
    {"title", title},
    {"trim", trim},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"replace", replace},
    {"join", join},
    {"tojson", tojson},
    {"format", format},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

std::span<const Filter> text_filters() {
  return kTextFilters;
}

}  // namespace moeloom::jinja
