#include "tokenizer/post_processor.hpp"

#include <algorithm>

#include "tokenizer/byte_alphabet.hpp"

namespace moeloom::tokenizing {
namespace {

bool looks_white(char32_t c) {
  return c == letter_of(' ') || is_white_space(c);
}

struct WhiteEnds {
  std::size_t leading = 0;
  std::size_t trailing = 0;
};

WhiteEnds white_ends(std::string_view token) {
  WhiteEnds ends;
  bool only_white = true;
  for (std::size_t at = 0; at < token.size();) {
    const bool white = looks_white(next_code_point(token, at));
    only_white &= white;
    if (only_white) ++ends.leading;
    ends.trailing = white ? ends.trailing + 1 : 0;
  }
  return ends;
}

bool continues_character(char byte) {
  return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80;
}

std::size_t forward(std::string_view text, std::size_t at, std::size_t characters, std::size_t most) {
  for (; characters > 0 && at < most; --characters) next_code_point(text, at);
  return std::min(at, most);
}

std::size_t backward(std::string_view text, std::size_t at, std::size_t characters, std::size_t least) {
  for (; characters > 0 && at > least; --characters) {
    do --at;
    while (at > least && continues_character(text[at]));
  }
  return std::max(at, least);
}

/// The ids of a template's special token.
std::vector<std::uint32_t> ids_of(const Field& name, const Field& special_tokens) {
  std::vector<std::uint32_t> ids;
  for (const Field& id : special_tokens.member(name.text()).member("ids").items()) ids.push_back(id.id());
  return ids;
}

/// Of ["</s>", 2].
std::uint32_t id_in_pair(const Field& field) {
  const std::vector<Field> items = field.items();
  if (items.size() != 2) field.refuse("[token, id]");
  return items[1].id();
}

}  // namespace

PostProcessor::PostProcessor(const Field& field) {
  add(field);
}

void PostProcessor::add(const Field& field) {
  enum Type { kSequence, kTemplate, kRoberta, kBert };
  switch (field.choice(
      "type", {"Sequence", "TemplateProcessing", "RobertaProcessing", "BertProcessing", "ByteLevel"})) {
    case kSequence:
      for (const Field& each : field.member("processors").items()) add(each);
      return;
    case kTemplate:
      return add_template(field);
    case kRoberta:
      if (field.boolean_or("trim_offsets", true))
        trims_.push_back({field.boolean_or("add_prefix_space", true)});
      [[fallthrough]];
    case kBert:
      return add_around(id_in_pair(field.member("cls")), id_in_pair(field.member("sep")));
    default:
      if (field.boolean_or("trim_offsets", true))
        trims_.push_back({field.boolean_or("add_prefix_space", true)});
  }
}

void PostProcessor::add_around(std::uint32_t before, std::uint32_t after) {
  added_.before.insert(added_.before.begin(), before);
  added_.after.push_back(after);
}

void PostProcessor::add_template(const Field& field) {
  AddAround around;
  bool seen_text = false;
  for (const Field& each : field.member("single").items()) {
    if (const auto sequence = each.optional("Sequence")) {
      if (seen_text || sequence->member("id").text() != "A") sequence->refuse("the sequence A, once");
      seen_text = true;
      continue;
    }
    const auto ids = ids_of(each.member("SpecialToken").member("id"), field.member("special_tokens"));
    auto& side = seen_text ? around.after : around.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_text) field.member("single").refuse("the sequence A in it");
  added_.before.insert(added_.before.begin(), around.before.begin(), around.before.end());
  added_.after.insert(added_.after.end(), around.after.begin(), around.after.end());
}

void PostProcessor::trim(std::string_view text, Encoding& encoding,
                         const std::function<const std::string*(std::uint32_t)>& string_of) const {
  for (const TrimOffsets& trim : trims_)
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
      ByteRange& range = encoding.offsets[i];
      const std::string* string = string_of(encoding.ids[i]);
      WhiteEnds ends =
          white_ends(string != nullptr ? *string : text.substr(range.begin, range.end - range.begin));
      if (trim.keeps_first_space && (i == 0 || range.begin == 0)) ends.leading = 0;
      range.begin = forward(text, range.begin, ends.leading, range.end);
      range.end = backward(text, range.end, ends.trailing, range.begin);
    }
}

}  // namespace moeloom::tokenizing
