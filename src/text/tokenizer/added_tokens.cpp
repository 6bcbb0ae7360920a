#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <cstring>

#include "tokenizer/regex.hpp"

namespace moeloom::tokenizing {
namespace {

std::size_t previous_character(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool word_ends_at(std::string_view text, std::size_t at) {
  if (at == 0) return false;
  std::size_t before = previous_character(text, at);
  return is_word_character(next_code_point(text, before));
}

bool word_begins_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word_character(next_code_point(text, at));
}

/// `least` is not gone behind.
std::size_t without_space_before(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const std::size_t before = previous_character(text, at);
    std::size_t end = before;
    if (!is_white_space(next_code_point(text, end))) break;
    at = before;
  }
  return std::max(at, least);
}

std::size_t without_space_behind(std::string_view text, std::size_t at) {
  for (std::size_t end = at; at < text.size(); at = end)
    if (!is_white_space(next_code_point(text, end))) break;
  return at;
}

AddedToken token_of(const Field& field) {
  AddedToken token;
  token.content = field.member("content").text();
  field.member("id").id();  // another number than the engine's is not used, but must be one
  token.single_word = field.boolean_or("single_word", false);
  token.strips_left = field.boolean_or("lstrip", false);
  token.strips_right = field.boolean_or("rstrip", false);
  token.special = field.boolean_or("special", false);
  token.normalized = field.boolean_or("normalized", !token.special);
  return token;
}

}  // namespace

void AddedTokenSearch::add(std::string_view content, const AddedToken& token) {
  if (content.empty()) return;
  contents_.add(content, static_cast<std::uint32_t>(tokens_.size()), false);
  tokens_.push_back(&token);
  bool& begins = begins_[static_cast<std::uint8_t>(content[0])];
  if (!begins) first_bytes_ += content[0];
  begins = true;
}

std::size_t AddedTokenSearch::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
  while (from < text.size() && !begins_[static_cast<std::uint8_t>(text[from])]) ++from;
  return from;
}

std::optional<AddedTokenSearch::Match> AddedTokenSearch::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = next_candidate(text, from); at < text.size(); at = next_candidate(text, at + 1)) {
    Match longest;
    contents_.prefixes(text.substr(at), [&](std::uint32_t number, std::size_t bytes) {
      longest = {at, at + bytes, tokens_[number]};
    });
    if (longest.token != nullptr) return longest;
  }
  return std::nullopt;
}

std::vector<TextPart> AddedTokenSearch::parts(std::string_view text) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;
  std::size_t from = 0;
  while (!tokens_.empty()) {
    const auto match = next(text, from);
    if (!match) break;
    from = match->end;
    const AddedToken& token = *match->token;
    if (token.single_word && (word_ends_at(text, match->begin) || word_begins_at(text, match->end))) continue;
    const std::size_t begin = token.strips_left
                                  ? without_space_before(text, match->begin, std::min(done, match->begin))
                                  : match->begin;
    const std::size_t end = token.strips_right ? without_space_behind(text, match->end) : match->end;
    const std::size_t kept = std::min(token.strips_left ? std::max(begin, done) : begin, end);
    if (done < kept) parts.push_back({{done, kept}, nullptr});
    if (kept < end) parts.push_back({{kept, end}, &token});  // else another one has swallowed it
    done = end;
  }
  if (done != text.size()) parts.push_back({{done, text.size()}, nullptr});
  return parts;
}

AddedTokens::AddedTokens(const std::optional<Field>& field, const std::vector<AddedToken>& instead,
                         const std::vector<AddedToken>& more, const Vocabulary& model,
                         const Normalizer& normalizer) {
  if (field)
    for (const Field& each : field->items()) add(token_of(each), model);
  for (const AddedToken& token : instead) add(token, model);
  for (const AddedToken& token : more)
    if (!ids_.contains(token.content)) add(token, model);
  for (const std::uint32_t id : order_) {
    const AddedToken& token = by_id_.at(id);
    decoded_[id] = token.normalized ? normalizer.apply(token.content) : token.content;
    (token.normalized ? normalized_ : raw_).add(decoded_[id], token);
  }
}

void AddedTokens::add(AddedToken token, const Vocabulary& model) {
  if (token.content.empty()) return;
  const auto in_model = model.id_of(token.content);
  const auto known = ids_.find(token.content);
  const auto next = static_cast<std::uint32_t>(model.count());
  if (in_model)
    token.id = *in_model;
  else if (known != ids_.end())
    token.id = known->second;
  else
    token.id = by_id_.empty() ? next : std::max(next, largest_id_ + 1);
  if (!by_id_.contains(token.id)) order_.push_back(token.id);
  ids_[token.content] = token.id;
  largest_id_ = std::max(largest_id_, token.id);
  by_id_[token.id] = std::move(token);
}

const AddedToken* AddedTokens::find(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? nullptr : find(found->second);
}

}  // namespace moeloom::tokenizing
