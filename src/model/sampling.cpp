#include "moeloom/model/sampling.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace moeloom {
namespace {

struct Candidate {
  std::int32_t id;
  float logit;
  double weight;  // e^((logit - largest) / temperature)
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

std::vector<Candidate> penalised(std::span<const float> logits, double penalty,
                                 std::span<const std::int32_t> text) {
  std::vector<Candidate> all(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id) all[id] = {static_cast<std::int32_t>(id), logits[id], 0};
  if (penalty == 1.0) return all;
  for (const std::int32_t id : text) {
    if (id < 0 || id >= std::ssize(logits)) continue;  // no token of this model
    const double logit = logits[at(id)];               // of the model: a token counts once
    all[at(id)].logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
  return all;
}

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& each : candidates) sum += each.weight;
  return sum;
}

void keep_likeliest(std::vector<Candidate>& candidates, Index count) {
  if (count <= 0 || count >= std::ssize(candidates)) return;
  std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), likelier);
  candidates.resize(at(count));
}

void keep_nucleus(std::vector<Candidate>& candidates, double share) {
  if (share >= 1.0) return;
  const double sum = sum_of(candidates);
  // All that are less likely than this have less than 1 - share together: they need not be sorted.
  const double least = (1 - share) * sum / static_cast<double>(candidates.size());
  std::erase_if(candidates, [&](const Candidate& each) { return each.weight < least; });
  std::ranges::sort(candidates, likelier);
  double reached = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && reached < share * sum) reached += candidates[kept++].weight;
  candidates.resize(std::max<std::size_t>(kept, 1));
}

}  // namespace

void check(const SamplingSettings& s) {
  Violations violations;
  const auto must = [&](bool holds, const std::string& name, double value, const std::string& expected) {
    violations.unless(holds, name + " = " + std::to_string(value) + ": expected " + expected);
  };
  must(s.temperature >= 0, "temperature", s.temperature, "0 or more");
  must(s.top_k >= 0, "top_k", static_cast<double>(s.top_k), "0 or more");
  must(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "more than 0 and at most 1");
  must(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "0 to 1");
  must(s.repetition_penalty > 0, "repetition_penalty", s.repetition_penalty, "more than 0");
  violations.throw_if_any();
}

std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings, Index position,
                          std::span<const std::int32_t> text) {
  require(!logits.empty(), "sampling needs logits");
  if (std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); }))
    throw ConfigError({"the model's logits are not numbers: its weights are broken"}, Cause::kData);
  std::vector<Candidate> candidates = penalised(logits, settings.repetition_penalty, text);
  const Candidate first = *std::ranges::min_element(candidates, likelier);
  if (settings.temperature == 0 || settings.top_k == 1) return first.id;
  for (Candidate& each : candidates)
    each.weight = std::exp((static_cast<double>(each.logit) - first.logit) / settings.temperature);
  keep_likeliest(candidates, settings.top_k);
  keep_nucleus(candidates, settings.top_p);
  std::erase_if(candidates, [&](const Candidate& each) { return each.weight < settings.min_p; });
  // Whatever was sorted: equal settings draw the same token.
  if (candidates.size() < logits.size()) std::ranges::sort(candidates, {}, &Candidate::id);
  const CounterRandom random(settings.seed, stream_of("sample"));
  double left = random.uniform(static_cast<std::uint64_t>(position)) * sum_of(candidates);
  for (const Candidate& each : candidates)
    if ((left -= each.weight) < 0) return each.id;
  return std::ranges::min_element(candidates, likelier)->id;  // where roundings left a rest
}

}  // namespace moeloom
