#include "fuzz/json_mutations.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

namespace moeloom::fuzz {
namespace {

using Json = nlohmann::ordered_json;

struct Stretch {
  std::size_t begin = 0, count = 0;
};

constexpr std::size_t kLength = sizeof(std::uint64_t);

/// Whether it is a document behind its length, as a header of safetensors is.
bool has_length(std::string_view input) {
  if (input.size() <= kLength || input[kLength] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, input.data(), kLength);
  return length <= input.size() - kLength;
}

std::vector<Stretch> split(std::string_view input, Stretch part, char at) {
  std::vector<Stretch> parts;
  const std::size_t end = part.begin + part.count;
  for (std::size_t begin = part.begin; begin <= end;) {
    const std::size_t next = std::min(input.find(at, begin), end);
    parts.push_back({begin, next - begin});
    begin = next + 1;
  }
  return parts;
}

std::optional<Json> parsed(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_structured()) return std::nullopt;
  return json;
}

void collect(Json& json, std::vector<Json*>& nodes) {
  nodes.push_back(&json);
  if (json.is_structured())
    for (Json& inner : json) collect(inner, nodes);
}

Json odd_value(const Draw& below) {
  static const std::vector<Json> kValues = {
      nullptr,       true,           false,      0,         -1,        1,         2,          3,      0.5,
      -0.0,          1e308,          INT64_MAX,  INT64_MIN, INT32_MAX, INT32_MIN, UINT32_MAX, 1e-310, "",
      Json::array(), Json::object(), UINT64_MAX, "../x",    "0",       "null",    1e19};
  return kValues[below(kValues.size())];
}

std::string any_name(const std::vector<Json*>& nodes, const Draw& below) {
  const Json& of = *nodes[below(nodes.size())];
  if (of.is_string()) return of.get<std::string>();
  if (!of.is_object() || of.empty()) return "x";
  return std::next(of.begin(), static_cast<std::ptrdiff_t>(below(of.size()))).key();
}

void change_number(Json& node, const Draw& below) {
  if (node.is_number_float()) {
    const double value = node.get<double>();
    node = std::vector<double>{-value, value + 1, value * 2, value * 0.5}[below(4)];
  } else {
    const auto value = node.get<std::uint64_t>();  // of a negative number its bits, which no sum overflows
    const std::uint64_t other =
        std::vector<std::uint64_t>{value + 1, value - 1, value * 2, 0 - value, value / 2}[below(5)];
    node = node.is_number_unsigned() ? Json(other) : Json(static_cast<std::int64_t>(other));
  }
}

void change_text(Json& node, const std::vector<Json*>& nodes, const Draw& below) {
  auto text = node.get<std::string>();
  if (const auto inner = json_mutation(text, below); inner && below(4) > 0) {
    node = *inner;
    return;
  }
  const std::size_t place = below(text.size() + 1);
  switch (below(5)) {
    case 0:
      text.resize(place);
      break;
    case 1:
      text.insert(place, any_name(nodes, below));
      break;
    case 2:
      text.insert(place, 1, static_cast<char>(below(128)));
      break;
    case 3:
      text.erase(place, 1 + below(4));
      break;
    default:
      text = any_name(nodes, below);
  }
  node = text;
}

void change_members(Json& node, const std::vector<Json*>& nodes, const Draw& below) {
  const Json value = below(2) == 0 ? odd_value(below) : *nodes[below(nodes.size())];
  const std::size_t place = below(node.size());
  if (node.is_array()) {
    if (below(2) == 0 && !node.empty())
      node.erase(place);
    else
      node.insert(node.begin() + static_cast<std::ptrdiff_t>(place), value);
    return;
  }
  if (node.empty() || below(3) == 0) {
    node[any_name(nodes, below)] = value;
    return;
  }
  const auto member = std::next(node.begin(), static_cast<std::ptrdiff_t>(place));
  const std::string name = member.key();
  if (below(2) == 0) {
    const Json renamed = member.value();
    node[below(2) == 0 ? any_name(nodes, below) : name + "x"] = renamed;
  }
  node.erase(name);
}

void change(Json& json, const Draw& below) {
  std::vector<Json*> nodes;
  collect(json, nodes);
  Json& node = *nodes[below(nodes.size())];
  switch (below(4)) {
    case 0:
      node = odd_value(below);
      return;
    case 1: {
      const Json other = *nodes[below(nodes.size())];
      node = other;
      return;
    }
    default:
      if (node.is_structured()) return change_members(node, nodes, below);
      if (node.is_string()) return change_text(node, nodes, below);
      if (node.is_number()) return change_number(node, below);
      node = odd_value(below);
  }
}

}  // namespace

std::optional<std::string> json_mutation(std::string_view input, const Draw& below) {
  const bool framed = has_length(input);
  Stretch part{0, input.size()};
  if (framed) {
    std::uint64_t length = 0;
    std::memcpy(&length, input.data(), kLength);
    part = {kLength, length};
  } else if (const auto parts = split(input, part, '\xff'); parts.size() > 1) {
    part = parts[below(parts.size())];
  }
  auto json = parsed(input.substr(part.begin, part.count));
  if (!json) {
    const auto lines = split(input, part, '\n');
    part = lines[below(lines.size())];
    json = parsed(input.substr(part.begin, part.count));
  }
  if (!json) return std::nullopt;
  for (std::size_t left = 1 + below(4); left > 0; --left) change(*json, below);
  const std::string text = json->dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string changed = std::string(input.substr(0, part.begin)) + text;
  if (framed) {
    const std::uint64_t length = text.size();
    std::memcpy(changed.data(), &length, kLength);
  }
  return changed + std::string(input.substr(part.begin + part.count));
}

}  // namespace moeloom::fuzz
