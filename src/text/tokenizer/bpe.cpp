#include "tokenizer/bpe.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <functional>

#include "tokenizer/byte_alphabet.hpp"

namespace moeloom::tokenizing {
namespace {

constexpr std::string_view kWordMark = "\u2581";

std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, letter_of(static_cast<std::uint8_t>(byte)));
  return letters;
}

}  // namespace

std::string byte_token(std::uint8_t byte) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

Bpe::Bpe(const Field& model, Unit unit) : unit_(unit) {
  const Field vocab = model.member("vocab");
  vocabulary_.reserve(vocab.object().size());
  for (const auto& [token, id] : vocab.object()) vocabulary_.add(token, Field(id, vocab.path()).id(), vocab);
  prefix_ = model.text_or_empty("continuing_subword_prefix");
  suffix_ = model.text_or_empty("end_of_word_suffix");
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  if (byte_fallback_ && !(prefix_ + suffix_).empty())  // the bytes of either would be tokens without a place
    throw ConfigError({model.path() +
                       ": byte_fallback beside continuing_subword_prefix or end_of_word_suffix is "
                       "not implemented"});
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  ignore_merges_ = model.boolean_or("ignore_merges", false);
  if (const auto unknown = model.optional("unk_token")) unknown_ = unknown->text();
  if (const auto dropout = model.optional("dropout"); dropout && dropout->number() != 0)
    dropout->refuse("null: dropout is not implemented");
  add_merges(model.member("merges"));
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string letter;
    append_utf8(letter, unit == Unit::kByte ? letter_of(static_cast<std::uint8_t>(byte))
                                            : static_cast<char32_t>(byte));
    byte_ids_[byte] = vocabulary_.id_of(letter).value_or(kNone);
    fallback_ids_[byte] = vocabulary_.id_of(byte_token(static_cast<std::uint8_t>(byte))).value_or(kNone);
  }
}

void Bpe::add_merges(const Field& merges) {
  const JsonValue::Array& list = merges.array();
  merges_ = FlatMap<Merge>(list.size());
  splits_at_words_ = unit_ == Unit::kCharacter && !ignore_merges_ && prefix_.empty() && suffix_.empty() &&
                     vocabulary_.id_of(kWordMark);
  std::uint32_t rank = 0;
  for (const JsonValue& each : list) {
    if (const std::string* line = each.text()) {
      if (line->starts_with("#version")) continue;
      const std::size_t space = line->find(' ');
      if (space == std::string::npos || line->find(' ', space + 1) != std::string::npos)
        Field(each, merges.path()).refuse("two tokens with one space between them");
      const std::string_view text = *line;
      add_merge(text.substr(0, space), text.substr(space + 1), rank++, merges);
      continue;
    }
    const JsonValue::Array* pair = each.array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].text() || !(*pair)[1].text())
      Field(each, merges.path()).refuse("\"a b\" or [\"a\", \"b\"]");
    add_merge(*(*pair)[0].text(), *(*pair)[1].text(), rank++, merges);
  }
}

void Bpe::add_merge(std::string_view first, std::string_view second, std::uint32_t rank,
                    const Field& merges) {
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary_.id_of(token);
    if (!id)
      throw ConfigError({merges.path() + ": merge " + std::to_string(rank) + " is about \"" +
                         std::string(token) + "\", which is not in the vocabulary"});
    return *id;
  };
  const std::uint64_t key = std::uint64_t{id_of(first)} << 32 | id_of(second);
  const std::string_view rest = second.substr(std::min(prefix_.size(), second.size()));
  merges_[key] = {rank, id_of(std::string(first) + std::string(rest))};
  if (second.starts_with(kWordMark) && !first.ends_with(kWordMark)) splits_at_words_ = false;
}

std::optional<std::uint32_t> Bpe::whole(std::string_view piece) const {
  return vocabulary_.id_of(unit_ == Unit::kByte ? letters_of(piece) : std::string(piece));
}

void Bpe::encode(std::string_view piece, BpeSpace& space, std::vector<Token>& tokens) const {
  if (ignore_merges_)
    if (const auto id = whole(piece)) {
      tokens.push_back({*id, 0, static_cast<std::uint32_t>(piece.size())});
      return;
    }
  space.symbols.clear();
  add_symbols(piece, space.symbols);
  constexpr std::size_t kFew = 48;  // below it, looking at all of them is faster than a heap
  if (space.symbols.size() <= kFew)
    merge_few(space);
  else
    merge_many(space);
  std::uint32_t begin = 0;
  for (const BpeSpace::Symbol& symbol : space.symbols) {
    if (symbol.id == kNone) continue;
    tokens.push_back({symbol.id, begin, begin + symbol.bytes});
    begin += symbol.bytes;
  }
}

std::optional<std::uint32_t> Bpe::id_of_character(std::string_view character, bool first, bool last) const {
  if ((first || prefix_.empty()) && (!last || suffix_.empty())) {
    if (character.size() > 1) return vocabulary_.id_of(character);
    const std::uint32_t id = byte_ids_[static_cast<std::uint8_t>(character[0])];
    return id == kNone ? std::nullopt : std::optional(id);
  }
  return vocabulary_.id_of((first ? "" : prefix_) + std::string(character) + (last ? suffix_ : ""));
}

bool Bpe::add_byte_tokens(std::string_view character, std::vector<BpeSpace::Symbol>& symbols) const {
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<std::uint8_t>(byte)]; };
  if (!byte_fallback_ || std::ranges::any_of(character, [&](char byte) { return id_of(byte) == kNone; }))
    return false;
  for (const char byte : character) symbols.push_back({id_of(byte), 1});
  return true;
}

void Bpe::add_symbols(std::string_view piece, std::vector<BpeSpace::Symbol>& symbols) const {
  std::optional<BpeSpace::Symbol> unknown;  // not yet added: it may grow
  const auto add_unknown = [&] {
    if (unknown) symbols.push_back(*unknown);
    unknown.reset();
  };
  for (std::size_t at = 0, end = 0; at < piece.size(); at = end) {
    if (unit_ == Unit::kByte)
      ++end;
    else
      next_code_point(piece, end);
    const std::string_view character = piece.substr(at, end - at);
    const auto bytes = static_cast<std::uint32_t>(character.size());
    if (const auto id = id_of_character(character, at == 0, end == piece.size())) {
      add_unknown();
      symbols.push_back({*id, bytes});
    } else if (!add_byte_tokens(character, symbols) && unknown_) {
      if (unknown && fuse_unknown_) {
        unknown->bytes += bytes;
        continue;
      }
      add_unknown();
      const auto id_of_unknown = vocabulary_.id_of(*unknown_);
      if (!id_of_unknown)
        throw ConfigError({"the tokenizer's unk_token \"" + *unknown_ + "\" is not in its vocabulary"});
      unknown = BpeSpace::Symbol{*id_of_unknown, bytes};
    }
  }
  add_unknown();
}

void Bpe::merge_few(BpeSpace& space) const {
  auto& symbols = space.symbols;
  auto& ranks = space.ranks;  // of the pair that begins there
  const auto rank_at = [&](std::size_t i) {
    if (i + 1 >= symbols.size()) return kNone;
    const Merge* merge = merge_of(symbols[i].id, symbols[i + 1].id);
    return merge == nullptr ? kNone : merge->rank;
  };
  ranks.resize(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
  while (symbols.size() > 1) {
    const auto lowest = std::ranges::min_element(ranks);
    if (*lowest == kNone) return;
    const auto i = lowest - ranks.begin();
    const auto place = static_cast<std::size_t>(i);
    symbols[place].id = merge_of(symbols[place].id, symbols[place + 1].id)->id;
    symbols[place].bytes += symbols[place + 1].bytes;
    symbols.erase(symbols.begin() + i + 1);
    ranks.erase(ranks.begin() + i + 1);
    ranks[place] = rank_at(place);
    if (place > 0) ranks[place - 1] = rank_at(place - 1);
  }
}

void Bpe::merge_many(BpeSpace& space) const {
  auto& symbols = space.symbols;
  auto& heap = space.heap;  // rank, then place
  const auto count = static_cast<std::uint32_t>(symbols.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols[i].before = i == 0 ? kNone : i - 1;
    symbols[i].after = i + 1 == count ? kNone : i + 1;
  }
  const auto merge_at = [&](std::uint32_t i) -> const Merge* {
    const bool paired = i != kNone && symbols[i].id != kNone && symbols[i].after != kNone;
    return paired ? merge_of(symbols[i].id, symbols[symbols[i].after].id) : nullptr;
  };
  const auto entry_of = [](const Merge& merge, std::uint32_t i) {
    return std::uint64_t{merge.rank} << 32 | i;
  };
  heap.clear();
  for (std::uint32_t i = 0; i < count; ++i)
    if (const Merge* merge = merge_at(i)) heap.push_back(entry_of(*merge, i));
  std::ranges::make_heap(heap, std::greater{});
  const auto push = [&](std::uint32_t i) {
    const Merge* merge = merge_at(i);
    if (merge == nullptr) return;
    heap.push_back(entry_of(*merge, i));
    std::ranges::push_heap(heap, std::greater{});
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater{});
    const std::uint64_t entry = heap.back();
    heap.pop_back();
    const auto i = static_cast<std::uint32_t>(entry);
    const Merge* merge = merge_at(i);
    if (merge == nullptr || entry_of(*merge, i) != entry) continue;  // a neighbour has merged since
    BpeSpace::Symbol& right = symbols[symbols[i].after];
    symbols[i].id = merge->id;
    symbols[i].bytes += right.bytes;
    symbols[i].after = right.after;
    right.id = kNone;
    if (symbols[i].after != kNone) symbols[symbols[i].after].before = i;
    push(symbols[i].before);
    push(i);
  }
}

}  // namespace moeloom::tokenizing
