#include "ask/score.hpp"

#include <algorithm>
#include <numbers>

namespace moeloom {
namespace {

using Ids = std::span<const std::uint32_t>;

bool is_text(std::uint32_t id, const ModelText& text) {
  const Tokenizer* const tokenizer = text.tokenizer();
  return tokenizer == nullptr || (tokenizer->token_of(id) && !tokenizer->is_special(id));
}

/// Of what the ids decode to, up to the last character that is whole.
Index whole_bytes(Ids ids, const ModelText& text) {
  constexpr std::string_view kReplacement = "\uFFFD";
  if (text.is_bytes()) return std::ssize(ids);
  const std::string decoded = text.decode(std::vector<std::int32_t>(ids.begin(), ids.end()));
  std::string_view whole = decoded;
  while (whole.ends_with(kReplacement)) whole.remove_suffix(kReplacement.size());
  return std::ssize(whole);
}

/// Of the text of learned tokens, stretch by stretch: how a token is decoded depends on those before it.
Index learned_bytes(const ExampleView& example, const ModelText& text) {
  const auto& learned = example.learned;
  Index bytes = 0;
  for (auto end = learned.begin() + 1; end != learned.end();) {
    const auto begin = std::find(end, learned.end(), 1);
    end = std::find(begin, learned.end(), 0);
    if (begin != end)
      bytes += whole_bytes(example.ids.first(at(end - learned.begin())), text) -
               whole_bytes(example.ids.first(at(begin - learned.begin())), text);
  }
  return bytes;
}

}  // namespace

double Score::bits_per_byte() const {
  return text_nats / std::numbers::ln2 / static_cast<double>(bytes);
}

Score& Score::operator+=(const Score& other) {
  nats += other.nats;
  tokens += other.tokens;
  text_nats += other.text_nats;
  bytes += other.bytes;
  return *this;
}

ScoredExample score_example(const ExampleView& example, std::span<const double> losses,
                            const ModelText* text) {
  ScoredExample scored;
  Score& score = scored.score;
  for (std::size_t i = 0; i + 1 < example.ids.size(); ++i) {
    if (example.learned[i + 1] == 0) continue;
    scored.logprobs.push_back(-losses[i]);
    score.nats += losses[i];
    if (text != nullptr && is_text(example.ids[i + 1], *text)) score.text_nats += losses[i];
  }
  score.tokens = std::ssize(scored.logprobs);
  if (text != nullptr && score.tokens > 0) score.bytes = learned_bytes(example, *text);
  return scored;
}

}  // namespace moeloom
