#include "moeloom/kernels/gmm_policy.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace moeloom {
namespace {

constexpr std::array kRequests = {GmmRequest::kNever, GmmRequest::kUpstreamRule, GmmRequest::kAuto,
                                  GmmRequest::kForce};

/// Both in the largest unit that suits them, or in bytes where that would hide the difference.
std::pair<std::string, std::string> texts_that_differ(Index a, Index b) {
  const std::pair texts(bytes_text(static_cast<double>(a)), bytes_text(static_cast<double>(b)));
  if (a == b || texts.first != texts.second) return texts;
  return {std::to_string(a) + " bytes", std::to_string(b) + " bytes"};
}

GmmDecision decide_by_upstream_rule(const GmmFacts& facts) {
  if (!facts.ep_size) {
    return {false, "no mesh is known, so nothing says that the resident weights are sharded (upstream rule)"};
  }
  const std::string ep = "ep = " + std::to_string(*facts.ep_size);
  if (*facts.ep_size <= 1) {
    return {false,
            ep + ": this rank holds every expert, so the resident weights are neither small nor sharded "
                 "(upstream rule)"};
  }
  if (!facts.contiguous) {
    return {false, ep + ", but the resident expert weights are not contiguous and each call would copy them "
                        "(upstream rule)"};
  }
  const auto [resident_text, budget_text] = texts_that_differ(facts.resident_bytes, facts.budget_bytes);
  const std::string resident = "resident expert weights " + resident_text;
  const std::string budget = "the budget " + budget_text;
  if (facts.resident_bytes > facts.budget_bytes) {
    return {false, ep + ", but the " + resident + " exceed " + budget + " (upstream rule)"};
  }
  return {true,
          ep + ": the " + resident + " are sharded, contiguous and within " + budget + " (upstream rule)"};
}

/// Faces that would be faster, where they can be had.
bool packs(const GmmFacts& facts) {
  return !facts.on_disk && facts.packed_bytes <= facts.budget_bytes &&
         facts.uses_per_packing >= kUsesThatPayPacking;
}

bool loop_is_faster(const GmmFacts& facts) {
  return facts.loop_may_run && facts.avx512 && facts.rows_per_expert <= kMostRowsOfTheLoop &&
         facts.expert_bytes <= kMostExpertBytesOfTheLoop;
}

/// What keeps faces from being packed, as the end of a sentence.
std::string why_not_packed(const GmmFacts& facts) {
  if (facts.uses_per_packing < kUsesThatPayPacking)
    return "packing pays from " + rounded_text(kUsesThatPayPacking) + " micro-batches a step on and there " +
           (facts.uses_per_packing == 1 ? "is " : "are ") + rounded_text(facts.uses_per_packing);
  if (facts.on_disk) return "packed copies would hold in memory what lies on a disk";
  const auto [packed, budget] = texts_that_differ(facts.packed_bytes, facts.budget_bytes);
  return "packed copies would take " + packed + ", over the budget " + budget;
}

GmmDecision decide_by_rule(const GmmFacts& facts) {
  if (loop_is_faster(facts))
    return {false, "a call has about one row an expert (" + rounded_text(facts.rows_per_expert) +
                       "), an expert is small (" + bytes_text(static_cast<double>(facts.expert_bytes)) +
                       ") and the CPU has AVX-512, with which the loop is faster there"};
  const std::string weights =
      "a rank's expert weights (" + bytes_text(static_cast<double>(facts.resident_bytes)) + " a layer) are ";
  if (packs(facts)) {
    const auto [packed, budget] = texts_that_differ(facts.packed_bytes, facts.budget_bytes);
    return {true, weights + (facts.contiguous ? "contiguous" : "not contiguous, but packed copies are") +
                      "; grouped products read packed copies (" + packed + ", within the budget " + budget +
                      "), because " + rounded_text(facts.uses_per_packing) +
                      " micro-batches a step use them and " + rounded_text(kUsesThatPayPacking) +
                      " pay for packing"};
  }
  const std::string because = ", because " + why_not_packed(facts);
  if (facts.contiguous) return {true, weights + "contiguous; grouped products read the masters" + because};
  return {false, weights +
                     "not contiguous, so every grouped product would copy them; packed copies, which "
                     "would be contiguous, are not made" +
                     because};
}

/// All but the faces.
GmmDecision decide_path(GmmRequest request, const GmmFacts& facts) {
  switch (request) {
    case GmmRequest::kNever:
      return {false, "GMM request 0: the experts run as the native loop"};
    case GmmRequest::kUpstreamRule:
      return decide_by_upstream_rule(facts);
    case GmmRequest::kAuto:
      return decide_by_rule(facts);
    case GmmRequest::kForce:
      return {true, "GMM request force: the experts run grouped, whatever the facts"};
  }
  return {};
}

}  // namespace

bool cpu_has_avx512() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

std::string_view name_of(GmmRequest request) {
  switch (request) {
    case GmmRequest::kNever:
      return "0";
    case GmmRequest::kUpstreamRule:
      return "1";
    case GmmRequest::kAuto:
      return "auto";
    case GmmRequest::kForce:
      return "force";
  }
  return "";
}

std::optional<GmmRequest> gmm_request_from_text(std::string_view text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  const auto begin = std::find_if_not(text.begin(), text.end(), is_space);
  std::string word(begin,
                   std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), is_space).base());
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = std::find_if(kRequests.begin(), kRequests.end(),
                                  [&](GmmRequest request) { return name_of(request) == word; });
  return found == kRequests.end() ? std::nullopt : std::optional(*found);
}

GmmDecision decide_gmm(GmmRequest request, const GmmFacts& facts) {
  GmmDecision decision = decide_path(request, facts);
  decision.packs = packs(facts);
  return decision;
}

}  // namespace moeloom
