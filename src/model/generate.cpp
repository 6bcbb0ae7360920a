#include "moeloom/model/generate.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moeloom {
namespace {

/// Token ids by falling logit, the first `keep` of them.
std::vector<std::int32_t> likeliest(std::span<const float> logits, Index keep) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto falling = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[at(a)];
    const float y = logits[at(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + keep, ids.end(), falling);
  ids.resize(at(keep));
  return ids;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings, Index position) {
  require(!logits.empty(), "sampling needs logits");
  const auto vocabulary = static_cast<Index>(logits.size());
  const Index keep = settings.top_k > 0 ? std::min(settings.top_k, vocabulary) : vocabulary;
  const std::vector<std::int32_t> ids = likeliest(logits, settings.temperature > 0 ? keep : 1);
  if (ids.size() == 1) return ids.front();
  std::vector<double> cumulative;
  double sum = 0;
  for (const std::int32_t id : ids) {
    const double gap = logits[at(id)] - logits[at(ids.front())];
    cumulative.push_back(sum += std::exp(gap / settings.temperature));
  }
  const CounterRandom random(settings.seed, stream_of("sample"));
  const double drawn = random.uniform(static_cast<std::uint64_t>(position)) * sum;
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, drawn);
  return ids[at(found - cumulative.begin())];
}

std::vector<std::int32_t> generate(Decoder& decoder, const Mesh& mesh, std::vector<std::int32_t> prompt,
                                   Index count, const SamplingSettings& settings,
                                   const std::function<void(std::int32_t)>& on_token) {
  const bool mine = mesh.world().rank() == 0;
  require(!mine || !prompt.empty(), "generation needs a prompt of at least one token");
  std::vector<std::int32_t> text = mine ? std::move(prompt) : std::vector<std::int32_t>{};
  decoder.start_sequence(static_cast<Index>(text.size()) + count);
  std::size_t fed = 0;
  for (Index i = 0; i < count; ++i) {
    const Matrix logits = decoder.next_logits(std::span(text).subspan(fed));
    if (!mine) continue;
    fed = text.size();
    text.push_back(sample_token(logits.view().flat(), settings, static_cast<Index>(fed)));
    if (on_token) on_token(text.back());
  }
  return text;
}

}  // namespace moeloom
