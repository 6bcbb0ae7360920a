#include "tokenizer/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace moeloom::tokenizing {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t), at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    hash = mixed(hash ^ word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, at, left);
  return mixed(hash ^ mixed(word));
}

void Vocabulary::reserve(std::size_t tokens) {
  tokens_.reserve(tokens);
  most_ids_ = std::max(most_ids_, 16 * tokens);
  grow(std::bit_ceil(2 * tokens + 2));
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, kNone);
  for (std::uint32_t place = 0; place < tokens_.size(); ++place) slots_[slot_of(tokens_[place].text)] = place;
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(token) & mask;
  while (slots_[slot] != kNone && tokens_[slots_[slot]].text != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::add(std::string token, std::uint32_t id, const Field& where) {
  if (id >= most_ids_) where.refuse("an id below " + std::to_string(most_ids_));
  if (2 * (tokens_.size() + 1) > slots_.size()) grow(std::max<std::size_t>(2 * slots_.size(), 16));
  const std::size_t slot = slot_of(token);
  if (slots_[slot] == kNone) {
    slots_[slot] = static_cast<std::uint32_t>(tokens_.size());
    tokens_.push_back({std::move(token), id});
  } else {
    tokens_[slots_[slot]].id = id;
  }
  if (id >= places_.size()) places_.resize(id + std::size_t{1}, kNone);
  places_[id] = slots_[slot];
}

std::optional<std::uint32_t> Vocabulary::id_of(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint32_t place = slots_[slot_of(token)];
  if (place == kNone) return std::nullopt;
  return tokens_[place].id;
}

const std::string* Vocabulary::token(std::uint32_t id) const {
  if (id >= places_.size() || places_[id] == kNone) return nullptr;
  return &tokens_[places_[id]].text;
}

}  // namespace moeloom::tokenizing
