// Made-up routings that benchmarks measure with: which experts each token goes to, and which rank has which
// tokens.
//
// The choices of a step follow from (workload, seed, step) and the sizes alone, and a rank's tokens from the
// number of ranks, so that every ep of a world does the same logical work. Experts lie on ranks in blocks;
// what is hot or idle is therefore told by expert, in blocks that lie on one rank for any ep that matters.
// Pure functions, no collective: each rank asks for its own tokens.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

enum class SyntheticWorkload {
  kBalanced,    // every expert the same number of rows, give or take one
  kRandom,      // every expert is as likely as any other
  kZipf,        // the i-th expert is drawn in proportion to 1 / i: the first rank is the fullest
  kHot,         // expert 0 gets a row of every token, or half of them all if top_k = 1; the rest is balanced
  kHotExperts,  // Zipf: the i-th favourite is drawn in proportion to i^-1.2
  kHotRank,     // half of the draws go to the first block of experts
  kSpreadHot,   // the same heat, one hot expert in each part of the experts
  kRaggedSources,  // balanced, but rank r has tokens in proportion to r
  kZeroLoad,       // the upper half of the experts gets nothing: from ep = 2 on, the last rank idles
  kRotatingHot,    // kHotRank, its block one further every step
  kBurst           // balanced, but in every fourth step all tokens go to the same experts
};
inline constexpr std::array kWorkloads = {
    SyntheticWorkload::kBalanced,    SyntheticWorkload::kRandom,        SyntheticWorkload::kZipf,
    SyntheticWorkload::kHot,         SyntheticWorkload::kHotExperts,    SyntheticWorkload::kHotRank,
    SyntheticWorkload::kSpreadHot,   SyntheticWorkload::kRaggedSources, SyntheticWorkload::kZeroLoad,
    SyntheticWorkload::kRotatingHot, SyntheticWorkload::kBurst};
/// As it is written: "balanced", "hot-experts", "hot-rank", ...
std::string_view name_of(SyntheticWorkload workload);
/// The inverse; throws std::invalid_argument with the known names.
SyntheticWorkload synthetic_workload_named(std::string_view name);

/// kBurst: of each so many steps the last one is the burst, so that so many steps meet every kind of step.
inline constexpr Index kBurstPeriod = 4;

/// Sizes of what is routed.
struct WorkloadShape {
  Index tokens = 0;   // over all ranks
  Index experts = 0;  // E
  Index top_k = 0;    // K
};

/// Why the workload cannot be made with these sizes, with the arithmetic; none: it can.
std::optional<std::string> why_not(SyntheticWorkload workload, const WorkloadShape& shape);

/// Consecutive tokens of a step, from 0 over all ranks.
struct TokenRange {
  Index begin = 0;
  Index count = 0;
};
/// The tokens that lie on a rank in [0, ranks): each token is on one rank, in order.
TokenRange tokens_of_rank(SyntheticWorkload workload, Index tokens, Index ranks, Index rank);

/// topk_idx [range.count, top_k] of those tokens: K different experts for each. Only where why_not() is none.
std::vector<std::int32_t> choose_experts(SyntheticWorkload workload, const WorkloadShape& shape,
                                         std::uint64_t seed, Index step, TokenRange range);

}  // namespace moeloom
