#include "tokenizer/unigram.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/text/utf8.hpp"

#include <algorithm>
#include <limits>

namespace moeloom::tokenizing {

Unigram::Unigram(const Field& model) {
  const Field vocab = model.member("vocab");
  vocabulary_.reserve(vocab.array().size());
  double lowest = std::numeric_limits<double>::infinity();
  for (const JsonValue& each : vocab.array()) {
    const Field entry(each, vocab.path());
    if (entry.array().size() != 2) entry.refuse("[piece, score]");
    const auto id = static_cast<std::uint32_t>(scores_.size());
    const Field piece(entry.array()[0], vocab.path());
    vocabulary_.add(piece.text(), id, entry);
    pieces_.add(piece.text(), id, true);
    scores_.push_back(Field(entry.array()[1], vocab.path()).number());
    lowest = std::min(lowest, scores_.back());
  }
  constexpr double kPenalty = 10;  // as SentencePiece's
  unknown_score_ = lowest - kPenalty;
  if (const auto unknown = model.optional("unk_id")) {
    unknown_ = unknown->id();
    if (*unknown_ >= scores_.size()) unknown->refuse("an id of the vocabulary");
  }
  if (!model.boolean_or("byte_fallback", false)) return;
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (const auto id = vocabulary_.id_of(byte_token(static_cast<std::uint8_t>(byte))))
      fallback_ids_.push_back(*id);
  if (fallback_ids_.size() < 256) fallback_ids_.clear();
}

std::uint32_t Unigram::unknown() const {
  if (!unknown_) throw ConfigError({"the tokenizer has no piece for a character of the text, and no unk_id"});
  return *unknown_;
}

void Unigram::find_best(std::string_view piece, std::vector<UnigramSpace::Best>& best) const {
  best.assign(piece.size() + 1, {});
  for (std::size_t begin = 0, next = 0; begin < piece.size(); begin = next) {
    next_code_point(piece, next);
    const double here = best[begin].score;
    const auto offer = [&](std::size_t end, std::uint32_t id, double score) {
      if (best[end].reached && here + score <= best[end].score) return;
      best[end] = {here + score, static_cast<std::uint32_t>(begin), id, true};
    };
    bool one_character = false;
    pieces_.prefixes(piece.substr(begin), [&](std::uint32_t id, std::size_t bytes) {
      offer(begin + bytes, id, scores_[id]);
      one_character |= begin + bytes == next;
    });
    if (!one_character) offer(next, unknown(), unknown_score_);
  }
}

void Unigram::add_token(std::string_view piece, std::uint32_t begin, std::uint32_t end,
                        std::vector<Token>& tokens) const {
  const std::string_view text = piece.substr(begin, end - begin);
  if (const auto id = vocabulary_.id_of(text)) return tokens.push_back({*id, begin, end});
  if (fallback_ids_.empty()) return tokens.push_back({unknown(), begin, end});
  for (const char byte : text) tokens.push_back({fallback_ids_[static_cast<std::uint8_t>(byte)], begin, end});
}

void Unigram::encode(std::string_view piece, UnigramSpace& space, std::vector<Token>& tokens) const {
  auto& best = space.best;
  find_best(piece, best);
  auto& ends = space.ends;
  ends.clear();
  for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0; end = best[end].begin) {
    const bool continues_unknown =
        !ends.empty() && unknown_ && best[end].id == *unknown_ && best[ends.back()].id == *unknown_;
    if (continues_unknown)
      best[ends.back()].begin = best[end].begin;
    else
      ends.push_back(end);
  }
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) add_token(piece, best[*end].begin, *end, tokens);
}

}  // namespace moeloom::tokenizing
