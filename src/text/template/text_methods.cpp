// Methods of Python's str.
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <limits>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

constexpr std::size_t kEvery = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kNowhere = std::string_view::npos;

struct CallOn {
  Meter& meter;
  const Text& self;
  const std::string& text;
  bool safe;
  const std::string& name;
  const Arguments& arguments;

  Value made(std::string result) const {
    meter.make(result.size());
    return text_value(std::move(result), safe);
  }
  std::string argument(const Value& value) const { return *of_text(value).bytes; }
  /// What gets into a marked text is escaped; what is looked for in it is not.
  std::string inserted(const Value& value) const {
    const Text& other = of_text(value);
    return safe && !other.safe ? escaped(*other.bytes) : *other.bytes;
  }

  const Text& of_text(const Value& value) const {
    const Text* other = value.as<Text>();
    if (other == nullptr) throw Failure("str." + name + "() takes str, not " + type_name(value));
    return *other;
  }
};

std::string_view stripped(std::string_view text, const std::string& name, const std::string* letters) {
  if (name != "rstrip")
    text = letters != nullptr ? without_left(text, *letters) : without_left(text, is_python_space);
  if (name != "lstrip")
    text = letters != nullptr ? without_right(text, *letters) : without_right(text, is_python_space);
  return text;
}

Value strip(const CallOn& call) {
  const Bound bound("strip", call.arguments, {"chars"});
  if (!bound.given(0) || bound[0].is_none())
    return call.made(std::string(stripped(call.text, call.name, nullptr)));
  const std::string letters = call.argument(bound[0]);
  return call.made(std::string(stripped(call.text, call.name, &letters)));
}

std::vector<std::string> split_spaces(std::string_view text, std::size_t most) {
  std::vector<std::string> parts;
  text = without_left(text, is_python_space);
  while (!text.empty()) {
    if (parts.size() == most) {
      parts.emplace_back(text);
      break;
    }
    std::size_t end = 0;
    for (std::size_t at = 0; end < text.size(); end = at)
      if (is_python_space(next_code_point(text, at))) break;
    parts.emplace_back(text.substr(0, end));
    text = without_left(text.substr(end), is_python_space);
  }
  return parts;
}

std::vector<std::string> rsplit_spaces(std::string_view text, std::size_t most) {
  std::vector<std::string> parts;
  text = without_right(text, is_python_space);
  while (!text.empty()) {
    if (parts.size() == most) {
      parts.emplace_back(text);
      break;
    }
    const std::string_view rest =
        without_right(text, [](char32_t letter) { return !is_python_space(letter); });
    parts.emplace_back(text.substr(rest.size()));
    text = without_right(rest, is_python_space);
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::size_t most) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t at = find_in(text, separator); at != kNowhere && parts.size() < most;
       at = find_in(text, separator, begin)) {
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string reversed(std::string_view text) {
  return {text.rbegin(), text.rend()};
}

std::vector<std::string> rsplit_at(std::string_view text, std::string_view separator, std::size_t most) {
  std::vector<std::string> parts = split_at(reversed(text), reversed(separator), most);
  std::ranges::reverse(parts);
  for (std::string& part : parts) std::ranges::reverse(part);
  return parts;
}

/// Linear, as find_in is.
std::size_t rfind_in(std::string_view text, std::string_view part) {
  const std::size_t at = find_in(reversed(text), reversed(part));
  return at == kNowhere ? kNowhere : text.size() - at - part.size();
}

Value list_of(const CallOn& call, std::vector<std::string> parts,
              Sequence::Kind kind = Sequence::Kind::kList) {
  constexpr std::size_t kBytesOfOne = sizeof(Value) + 64;
  call.meter.make(parts.size() * kBytesOfOne + call.text.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.push_back(text_value(std::move(part), call.safe));
  return sequence_value(std::move(items), kind);
}

Value split(const CallOn& call) {
  const Bound bound("split", call.arguments, {"sep", "maxsplit"});
  const Integer asked = bound.integer(1, -1);
  const std::size_t most =
      asked < 0 ? kEvery : static_cast<std::size_t>(std::min<Integer>(asked, Integer{1} << 40));
  call.meter.make(call.text.size() * (sizeof(std::string) + 1));
  const bool from_left = call.name == "split";
  if (!bound.given(0) || bound[0].is_none())
    return list_of(call, from_left ? split_spaces(call.text, most) : rsplit_spaces(call.text, most));
  const std::string separator = call.argument(bound[0]);
  if (separator.empty()) throw Failure("empty separator");
  return list_of(call,
                 from_left ? split_at(call.text, separator, most) : rsplit_at(call.text, separator, most));
}

bool ends_line(char32_t letter) {
  return (letter >= 0x0A && letter <= 0x0D) || (letter >= 0x1C && letter <= 0x1E) || letter == 0x85 ||
         letter == 0x2028 || letter == 0x2029;
}

Value splitlines(const CallOn& call) {
  const Bound bound("splitlines", call.arguments, {"keepends"});
  const std::string_view text = call.text;
  scan_letters(call.meter, text);
  std::vector<std::string> lines;
  call.meter.make(text.size() * (sizeof(std::string) + 1));
  std::size_t begin = 0;
  for (std::size_t at = 0, end = 0; at < text.size(); end = at) {
    const char32_t letter = next_code_point(text, at);
    if (!ends_line(letter)) continue;
    if (letter == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (bound.flag(0, false) ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return list_of(call, std::move(lines));
}

Value partition(const CallOn& call) {
  const Bound bound("partition", call.arguments, {"sep"}, 1);
  const std::string separator = call.argument(bound[0]);
  if (separator.empty()) throw Failure("empty separator");
  const bool from_left = call.name == "partition";
  const std::size_t at = from_left ? find_in(call.text, separator) : rfind_in(call.text, separator);
  std::vector<std::string> parts = {call.text, "", ""};
  if (at == kNowhere && !from_left) parts = {"", "", call.text};
  if (at != kNowhere) parts = {call.text.substr(0, at), separator, call.text.substr(at + separator.size())};
  return list_of(call, std::move(parts), Sequence::Kind::kTuple);
}

Value replace(const CallOn& call) {
  const Bound bound("replace", call.arguments, {"old", "new", "count"}, 2);
  const std::string part = call.argument(bound[0]);
  const std::string by = call.inserted(bound[1]);
  const Integer asked = bound.integer(2, -1);
  call.meter.make(call.text.size() + count_in(call.text, part) * by.size());
  return call.made(replaced(call.text, part, by, asked < 0 ? kEvery : static_cast<std::size_t>(asked)));
}

Value join(const CallOn& call) {
  const Bound bound("join", call.arguments, {"iterable"}, 1);
  std::string text;
  bool first = true;
  for (const Value& item : iterated(call.meter, bound[0])) {
    if (item.text() == nullptr)
      throw Failure(std::string("expected str instance, ") + type_name(item) + " found");
    const std::string part = call.inserted(item);
    call.meter.make(part.size() + call.text.size());
    if (!first) text += call.text;
    first = false;
    text += part;
  }
  return text_value(std::move(text), call.safe);
}

/// What two optional arguments, code points as in a slice, leave; none where they leave no place, which does
/// not hold the empty text either.
std::optional<std::string_view> window(const CallOn& call, const Bound& bound, std::size_t& begin_letters) {
  if (!bound.given(1) && !bound.given(2)) return call.text;
  scan_letters(call.meter, call.text);
  const auto count = static_cast<Integer>(count_code_points(call.text));
  const auto place = [&](std::size_t i, Integer otherwise) {
    const Integer asked = bound[i].is_none() ? otherwise : bound.integer(i, otherwise);
    return std::max<Integer>(asked < 0 ? asked + count : asked, 0);
  };
  const Integer first = place(1, 0);
  const Integer last = std::min(place(2, count), count);
  if (first > last) return std::nullopt;
  begin_letters = static_cast<std::size_t>(first);
  const std::size_t begin = byte_of(call.text, begin_letters);
  return std::string_view(call.text).substr(begin,
                                            byte_of(call.text, static_cast<std::size_t>(last)) - begin);
}

Value find(const CallOn& call) {
  const Bound bound(call.name.c_str(), call.arguments, {"sub", "start", "end"}, 1);
  const std::string part = call.argument(bound[0]);
  std::size_t before = 0;
  const std::optional<std::string_view> text = window(call, bound, before);
  if (call.name == "count") return integer_value(text ? static_cast<Integer>(count_in(*text, part)) : 0);
  const std::size_t at = !text                        ? kNowhere
                         : call.name.starts_with('r') ? rfind_in(*text, part)
                                                      : find_in(*text, part);
  if (at != kNowhere)
    return integer_value(static_cast<Integer>(before + count_code_points(text->substr(0, at))));
  if (call.name.ends_with("index")) throw Failure("substring not found");
  return integer_value(-1);
}

Value starts_or_ends(const CallOn& call) {
  const Bound bound(call.name.c_str(), call.arguments, {"prefix", "start", "end"}, 1);
  std::size_t before = 0;
  const std::optional<std::string_view> text = window(call, bound, before);
  const auto holds = [&](const Value& part) {
    const std::string wanted = call.argument(part);
    return text && (call.name == "startswith" ? text->starts_with(wanted) : text->ends_with(wanted));
  };
  const Sequence* several = bound[0].sequence();
  if (several == nullptr || several->kind != Sequence::Kind::kTuple) return holds(bound[0]);
  return std::ranges::any_of(several->items, holds);
}

Value without_affix(const CallOn& call) {
  const Bound bound(call.name.c_str(), call.arguments, {"affix"}, 1);
  const std::string part = call.argument(bound[0]);
  std::string_view text = call.text;
  if (call.name == "removeprefix" && text.starts_with(part)) text.remove_prefix(part.size());
  if (call.name == "removesuffix" && text.ends_with(part)) text.remove_suffix(part.size());
  return call.made(std::string(text));
}

Value justify(const CallOn& call) {
  const Bound bound(call.name.c_str(), call.arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound.given(1) ? call.inserted(bound[1]) : " ";
  if (count_code_points(fill) != 1) throw Failure("The fill character must be exactly one character long");
  const auto letters = static_cast<Integer>(count_code_points(call.text));
  const Integer missing = std::clamp<Integer>(bound.integer(0, 0) - letters, 0, Integer{1} << 40);
  // As CPython: the odd one goes to the left where the width is odd too.
  Integer left = missing / 2 + (missing & bound.integer(0, 0) & 1);
  if (call.name == "ljust") left = 0;
  if (call.name == "rjust") left = missing;
  call.meter.make(static_cast<std::size_t>(missing) * fill.size());
  std::string text;
  for (Integer i = 0; i < left; ++i) text += fill;
  text += call.text;
  for (Integer i = left; i < missing; ++i) text += fill;
  return call.made(std::move(text));
}

Value zfill(const CallOn& call) {
  const Bound bound("zfill", call.arguments, {"width"}, 1);
  const auto letters = static_cast<Integer>(count_code_points(call.text));
  const auto zeros =
      static_cast<std::size_t>(std::clamp<Integer>(bound.integer(0, 0) - letters, 0, Integer{1} << 40));
  call.meter.make(zeros);
  const std::size_t sign = call.text.starts_with('+') || call.text.starts_with('-') ? 1 : 0;
  return call.made(call.text.substr(0, sign) + std::string(zeros, '0') + call.text.substr(sign));
}

template <std::string (*Map)(std::string_view)>
Value mapped(const CallOn& call) {
  const Bound none(call.name.c_str(), call.arguments, {});
  scan_letters(call.meter, call.text);
  return call.made(Map(call.text));
}

template <bool (*Holds)(char32_t)>
Value all_are(const CallOn& call) {
  const Bound none(call.name.c_str(), call.arguments, {});
  scan_letters(call.meter, call.text);
  for (std::size_t at = 0; at < call.text.size();)
    if (!Holds(next_code_point(call.text, at))) return false;
  return !call.text.empty();
}

bool is_letter_or_digit(char32_t letter) {
  return is_letter(letter) || is_numeric(letter) || is_digit(letter);
}

template <bool (*Is)(char32_t), bool (*IsOther)(char32_t)>
Value has_only_case(const CallOn& call) {
  const Bound none(call.name.c_str(), call.arguments, {});
  scan_letters(call.meter, call.text);
  bool any = false;
  for (std::size_t at = 0; at < call.text.size();) {
    const char32_t letter = next_code_point(call.text, at);
    if (IsOther(letter)) return false;
    any = any || Is(letter);
  }
  return any;
}

Value is_title(const CallOn& call) {
  const Bound none(call.name.c_str(), call.arguments, {});
  scan_letters(call.meter, call.text);
  return is_titled(call.text);
}

Value is_ascii(const CallOn& call) {
  return std::ranges::all_of(call.text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value is_an_identifier(const CallOn& call) {
  scan_letters(call.meter, call.text);
  return is_identifier(call.text);
}

Value format(const CallOn& call) {
  return call.made(brace_format(call.meter, call.self, call.arguments));
}

struct TextMethod {
  std::string_view name;
  Value (*call)(const CallOn&);
};

constexpr TextMethod kMethods[] = {
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"split", split},
    {"rsplit", split},
    {"splitlines", splitlines},
    {"partition", partition},
    {"rpartition", partition},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"find", find},
    {"rfind", find},
    {"index", find},
    {"rindex", find},
    {"count", find},
    {"startswith", starts_or_ends},
    {"endswith", starts_or_ends},
    {"removeprefix", without_affix},
    {"removesuffix", without_affix},
    {"center", justify},
    {"ljust", justify},
    {"rjust", justify},
    {"zfill", zfill},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<titled>},
    {"capitalize", mapped<capitalized>},
    {"swapcase", mapped<case_swapped>},
    {"isalpha", all_are<is_letter>},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalnum", all_are<is_letter_or_digit>},
    {"isspace", all_are<is_python_space>},
    {"isupper", has_only_case<is_upper, is_lower>},
    {"islower", has_only_case<is_lower, is_upper>},
    {"istitle", is_title},
    {"isascii", is_ascii},
    {"isidentifier", is_an_identifier},
};

// Python has them, so a key of that name is not what `.name` gives.
constexpr std::string_view kOthers[] = {"casefold",  "encode",    "expandtabs", "format_map",
                                        "maketrans", "translate", "isprintable"};

}  // namespace

bool has_text_method(std::string_view name) {
  return std::ranges::find(kMethods, name, &TextMethod::name) != std::end(kMethods) ||
         std::ranges::find(kOthers, name) != std::end(kOthers);
}

Value call_text_method(Meter& meter, const Text& self, const std::string& name, const Arguments& arguments) {
  const auto* method = std::ranges::find(kMethods, std::string_view(name), &TextMethod::name);
  if (method == std::end(kMethods)) throw Failure("the method " + name + " of a text is not implemented");
  meter.scan(self.bytes->size());
  return method->call({meter, self, *self.bytes, self.safe, name, arguments});
}

}  // namespace moeloom::jinja
